#include "lockstep/train_main.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/names.h"
#include "base/os/environment.h"
#include "command/commands.h"
#include "command/help.h"
#include "command/program.h"
#include "command/train.h"
#include "command/usage.h"
#include "command/variable_check.h"
#include "lockstep/version.h"

namespace lockstep::cli {
namespace {

// The command line of a user's program. Without a subcommand it trains.
class TaskCommandLine {
 public:
  explicit TaskCommandLine(const ProblemFactory& make)
      : program_("Trains, evaluates and saves the model of this program", program_name()) {
    program_.formatter(std::make_shared<HelpFormatter>());
    program_.set_help_flag("-h,--help", "print this help and exit");
    program_.set_version_flag("-V,--version", fmt::format("{} (lockstep {})", program_name(), LOCKSTEP_VERSION),
                              "print the version and exit");
    add_training(program_, action_, make);
    add_training(*program_.add_subcommand("train", "train the model; same as no command"), action_, make);
    add_task_eval_command(program_, action_, make);
    add_inspect_command(program_, action_);
    add_completion_command(program_, action_);
    program_.require_subcommand(0, 1);
  }

  // Like CommandLine::parse().
  Action parse(int argc, char** argv, const lockstep::detail::Environment& environment) {
    try {
      std::vector<char*> words = replace_help_words(program_, argc, argv);
      const int count = static_cast<int>(words.size());
      check_first_word(words);
      check_words(program_, count, words.data());
      program_.parse(count, words.data());
      const std::vector<CLI::App*> selected = program_.get_subcommands();
      check_variables(selected.empty() ? program_ : *selected.front(), environment);
      return action_;
    } catch (const CLI::Success& answer) {  // help and version
      return [this, answer] { return program_.exit(answer); };
    } catch (const CLI::ParseError& error) {
      throw UsageError(usage_error(program_, error));
    }
  }

 private:
  // The first word may be a file of settings. Throws UsageError for a word that looks like a misspelled command.
  void check_first_word(const std::vector<char*>& words) const {
    if (words.size() < 2 || words[1][0] == '-') return;
    std::vector<std::string> commands;
    for (const CLI::App* command : program_.get_subcommands([](const CLI::App*) { return true; }))
      commands.push_back(command->get_name());
    std::error_code ignored;
    if (std::ranges::find(commands, words[1]) != commands.end() || std::filesystem::exists(words[1], ignored)) return;
    if (const std::string meant = suggestion(words[1], commands); !meant.empty())
      throw UsageError(fmt::format("unknown command \"{}\";{} see `{} --help`", words[1], meant, program_name()));
  }

  CLI::App program_;
  Action action_;
};

// Throws Error for a problem that cannot be trained, SettingsError for settings that it has no data for.
void check_problem(const Problem& problem, const TrainConfig& config) {
  if (!problem.task.init || !problem.task.loss)
    throw Error("train_main: the problem has no task; set Problem::task, such as by make_task()");
  if (!problem.train)
    throw Error("train_main: the problem has no training set; set Problem::train, such as by array_source()");
  if (config.patience > 0 && !problem.validation)
    throw SettingsError("patience",
                        fmt::format("train: patience is {}, but the task {} has no validation set; remove it",
                                    config.patience, problem.task.name));
}

}  // namespace
}  // namespace lockstep::cli

namespace lockstep::detail {

int train_main(int argc, char** argv, std::vector<SettingRow> rows,
               std::function<Problem(const NamedSettings&, const TrainInputs&)> make) {
  const std::string path = argc > 0 && argv[0] ? argv[0] : "";
  const std::string file = std::filesystem::path(path).filename().string(), name = file.empty() ? "train" : file;
  std::optional<UserProgram> program;
  return cli::run_program(name, [&] {
    program.emplace(name, std::move(rows));
    cli::TaskCommandLine line([make](const TrainConfig& config) {
      Problem problem = make(config.user, {.seed = config.seed, .batch_size = config.batch_size});
      cli::check_problem(problem, config);
      return problem;
    });
    return line.parse(argc, argv, own_environment())();
  });
}

}  // namespace lockstep::detail
