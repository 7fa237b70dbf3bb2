#include "command/config_flags.h"

#include <fmt/format.h>

#include <optional>

#include "base/file.h"
#include "command/command.h"
#include "command/help.h"
#include "train/run_folders.h"

namespace lockstep::cli {
namespace {

std::string help_of(const ConfigKey& key) {
  const std::string initial = text_of({}, key);
  const bool obvious = initial.empty() || key.is_switch();
  return std::string(key.help) + (obvious ? "" : " (default: " + initial + ")");
}

// Stores the text of a flag. Throws CLI::ValidationError when the key does not accept it.
void store_flag(ConfigMap& given, const ConfigKey& key, const std::string& text) {
  TrainConfig scratch;
  if (const std::string problem = assign(scratch, key, text); !problem.empty())
    throw CLI::ValidationError(key.flag(), problem);
  given[std::string(key.name)] = text;
}

CLI::Option* add_flag_of(CLI::App& app, ConfigMap& given, const ConfigKey& key) {
  if (key.is_switch()) {
    const auto put = [&given, &key](int64_t count) { store_flag(given, key, count > 0 ? "true" : "false"); };
    return app.add_flag_function(key.flag(), put, help_of(key))->take_last();
  }
  if (key.separator() != '\0') {
    const auto put = [&given, &key](const std::vector<std::string>& texts) {
      for (const std::string& text : texts)
        if (text.empty()) throw CLI::ValidationError(key.flag(), empty_element(text));
      store_flag(given, key, fmt::format("{}", fmt::join(texts, std::string(1, key.separator()))));
    };
    return app.add_option_function<std::vector<std::string>>(key.flag(), put, help_of(key))->allow_extra_args(false);
  }
  const auto put = [&given, &key](const std::string& text) { store_flag(given, key, text); };
  // The last occurrence wins, so that a script can append flags that override the user's.
  return app.add_option_function<std::string>(key.flag(), put, help_of(key))->take_last();
}

std::vector<std::string> examples_of_training() {
  const std::string command = train_command();
  if (is_user_program())
    return {command + " --epochs 3 --learning-rate 0.01 --expect 'test_loss<=0.1'",
            command + " run.yaml --devices 8 --run-dir run", command + " --resume last --epochs 6",
            "lockstep launch -n 2 -- ./" + command};
  return {command + " --model cnn --epochs 3 --expect 'test_accuracy>=0.98'",
          command + " run.yaml --devices 8 --run-dir run", command + " --resume last --epochs 6"};
}

std::string read_settings(const std::string& file) {
  try {
    constexpr int64_t kMaxBytes = 1 << 20;
    return read_user_file(file, kMaxBytes);
  } catch (const IoError& error) {
    throw UsageError(fmt::format("train: settings: {}", error.what()));
  }
}

// Returns `run.yaml:3: ` for a message about a setting of the file, which begins with the name of its key; else "".
std::string file_and_line_of(std::string_view message, const KeyLines& lines) {
  const auto found = lines.find(std::string(message.substr(0, message.find(':'))));
  return found == lines.end() ? "" : found->second + ": ";
}

// Whether a value of --resume is the path or the name of a run, and not a keyword or a step.
bool names_run(const std::string& resume) {
  return !resume.empty() && resume != "auto" && resume != "none" &&
         resume.find_first_not_of("0123456789") != resume.npos;
}

// The folder that a value names. Paths are left as they are: if there is no such checkpoint, its reader lists the others.
std::string folder_of_run(const std::string& setting, const std::string& value) {
  return value.find('/') == value.npos ? find_run(setting, value) : value;
}

// The settings of the run in a folder, which continue it there. None if the folder was not written by a run with a folder
// of its own.
std::optional<TrainConfig> settings_of_run(const std::string& folder) {
  FileSystem& files = FileSystem::real();
  if (!files.exists(folder + "/run.json")) return std::nullopt;
  std::string path = folder + "/run-config.yaml";  // if config.yaml is a file of the user
  if (!files.exists(path)) path = folder + "/config.yaml";
  if (!files.exists(path)) return std::nullopt;
  TrainConfig out = parse_yaml(read_settings(path), path);
  out.run_dir = folder;
  out.resume = "auto";
  out.quiet = false;
  return out;
}

// The settings of the command line over those of the file. They are laid over the settings of the run that --resume
// names, unless they have a folder of their own. Sets `lines` to the positions of the keys of the file.
TrainConfig merge_settings(const ConfigFlags& flags, KeyLines& lines) {
  const TrainConfig file =
      flags.file.empty() ? TrainConfig() : parse_yaml(read_settings(flags.file), flags.file, &lines);
  TrainConfig config = overlay(file, flags.given, "command line");
  // A run folder keeps the last checkpoint and the best one. Printed settings are the same for every folder.
  const bool keep_is_given = flags.given.contains("keep_last") || lines.contains("keep_last");
  if (!keep_is_given && !flags.print_config && has_run_folder(config)) config.keep_last = 1;
  if (!names_run(config.resume) || !config.run_dir.empty() || !has_run_folder(config)) return config;
  const std::optional<TrainConfig> run = settings_of_run(folder_of_run("resume", config.resume));
  if (!run) return config;
  ConfigMap values;
  for (const auto& [key, position] : lines) values[key] = text_of(file, *find_config_key(key));
  ConfigMap given = flags.given;
  values.erase("resume"), given.erase("resume");
  return overlay(overlay(*run, values, flags.file), given, "command line");
}

// Replaces the names of runs by their folders.
TrainConfig find_runs(TrainConfig config) {
  if (names_run(config.resume)) config.resume = folder_of_run("resume", config.resume);
  if (!config.init_from.empty()) config.init_from = folder_of_run("init_from", config.init_from);
  return config;
}

}  // namespace

void add_config_flag(CLI::App& app, ConfigMap& given, const ConfigKey& key) {
  CLI::Option* option = add_flag_of(app, given, key)->group(std::string(key.group));
  if (!key.metavar.empty()) option->type_name(std::string(key.metavar));
}

void add_config_flags(CLI::App& app, ConfigFlags& flags) {
  const std::string group = "Configuration";
  app.add_option("CONFIG,--config", flags.file,
                 "YAML file with any of the settings below, such as `learning_rate: 0.001`; flags take precedence")
      ->type_name("FILE")
      ->group(group);
  app.add_flag("--print-config", flags.print_config, "print all settings as a YAML file and exit")->group(group);
  app.add_flag("--print-schedule", flags.print_schedule,
               "compile the training step, print how it is executed (on a GPU: kernels, phases, tasks) and exit")
      ->group(group);
  for (const ConfigKey& key : config_keys()) add_config_flag(app, flags.given, key);
  add_runtime_flags(app, flags.runtime,
                    {SettingGroup::devices, SettingGroup::process, SettingGroup::communication, SettingGroup::run,
                     SettingGroup::cache});
  add_footer(app,
             "Exit codes:\n"
             "  0        success\n"
             "  1        the run failed, --strict ended it, or the last checkpoint could not be saved\n"
             "  2        wrong command line, configuration file or environment variable; nothing was started\n"
             "  3        an expectation of --expect was not met\n"
             "  75       a GPU, the network or another process failed; rerun to resume from the last checkpoint "
             "(138 in a replica of a Kubeflow JAXJob, which restarts only after codes from 128 on)\n"
             "  128 + N  stopped by signal N (Ctrl-C, SIGTERM, SIGHUP, SIGPIPE), after a checkpoint");
  add_examples(app, examples_of_training());
}

TrainConfig resolve_config(const ConfigFlags& flags, KeyLines* lines_out) {
  KeyLines lines;
  std::string where;
  try {
    TrainConfig config = find_runs(merge_settings(flags, lines));
    for (const auto& [key, text] : flags.given) lines.erase(key);
    try {
      validate(config);
    } catch (const Error& error) {
      where = file_and_line_of(error.what(), lines);
      throw;
    }
    if (lines_out) *lines_out = lines;
    return config;
  } catch (const Error& error) {
    throw UsageError(fmt::format("train: {}{}", where, error.what()));
  }
}

SettingsError with_file_and_line(const SettingsError& error, const KeyLines& lines) {
  const auto found = lines.find(error.key);
  if (found == lines.end()) return error;
  std::string_view text = error.what();
  constexpr std::string_view kCommand = "train: ";
  if (text.starts_with(kCommand)) text.remove_prefix(kCommand.size());
  return {error.key, fmt::format("train: {}: {}", found->second, text)};
}

}  // namespace lockstep::cli
