#include "cli/command_line.h"

#include <string>
#include <vector>

#include "command/help.h"
#include "command/usage.h"
#include "command/variable_check.h"
#include "lockstep/version.h"

namespace lockstep::cli {
namespace {

// The innermost subcommand of the command line.
const CLI::App& selected_command(const CLI::App& program) {
  const CLI::App* command = &program;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return *command;
}

}  // namespace

CommandLine::CommandLine() : program_("SPMD training in C++: train models, run and monitor jobs", "lockstep") {
  program_.require_subcommand(1);
  program_.formatter(std::make_shared<HelpFormatter>());
  program_.set_help_flag("-h,--help", "print this help and exit");
  program_.set_version_flag("-V,--version", "lockstep " LOCKSTEP_VERSION, "print the version and exit");
#define COMMAND(name, title)               \
  add_##name##_command(program_, action_); \
  program_.get_subcommand(#name)->group(title);
#include "cli/commands.def"
#undef COMMAND
  add_footer(program_, "`lockstep help COMMAND` describes a command.");
  add_examples(program_, {"lockstep train --model cnn --devices 8", "lockstep apply -f job.yaml"});
}

Action CommandLine::parse(int argc, char** argv, const detail::Environment& environment) {
  try {
    std::vector<char*> words = replace_help_words(program_, argc, argv);
    const int count = take_launched_command(static_cast<int>(words.size()), words.data());
    check_words(program_, count, words.data());
    program_.parse(count, words.data());
    // doctor lists wrong variables with the other problems that it finds.
    if (const CLI::App& command = selected_command(program_); command.get_name() != "doctor")
      check_variables(command, environment);
    return action_;
  } catch (const CLI::Success& answer) {  // help and version
    return [this, answer] { return program_.exit(answer); };
  } catch (const CLI::ParseError& error) {
    throw UsageError(usage_error(program_, error));
  }
}

void check_command_line(const std::vector<std::string>& words, const detail::Environment& environment) {
  // take_launched_command() would overwrite the command to start.
  if (!words.empty() && (words[0] == "launch" || words[0] == "submit")) return;
  std::vector<std::string> copy = words;
  std::string name = "lockstep";
  std::vector<char*> argv = {name.data()};
  for (std::string& word : copy) argv.push_back(word.data());
  CommandLine().parse(static_cast<int>(argv.size()), argv.data(), environment);
}

}  // namespace lockstep::cli
