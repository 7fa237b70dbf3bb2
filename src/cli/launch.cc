#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "base/names.h"
#include "base/os/environment.h"
#include "base/os/process.h"
#include "cli/command.h"
#include "cli/started_command.h"
#include "cluster/detect.h"
#include "command/choice_check.h"
#include "command/config_flags.h"
#include "command/devices_flag.h"
#include "command/help.h"
#include "command/number_check.h"
#include "command/runtime_flags.h"
#include "jobs/launch.h"
#include "jobs/uid.h"
#include "lockstep/distributed.h"
#include "lockstep/error.h"
#include "sharding/device_table.h"
#include "train/checkpoint_folder.h"
#include "train/run_folders.h"

namespace lockstep::cli {
namespace {

struct LaunchArguments {
  int processes = 0;  // 0: not given
  std::string devices = "auto", platform, hosts, ssh = "ssh", program, collectives;
  int port = 0;
  RuntimeFlags runtime;
  double grace = 15, stop_timeout = 300, restart_delay = 1;
  int max_restarts = 0;
  std::string logs;
  bool no_pin = false, quiet_ranks = false;
};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// Returns the program and its arguments.
std::vector<std::string> argv_of(const LaunchArguments& arguments, std::vector<std::string> words) {
  if (!arguments.program.empty()) {
    words.insert(words.begin(), arguments.program);
  } else if (words.empty()) {
    throw UsageError(fmt::format("launch: no command after --; add one, {}", kLaunchExample));
  } else if (words[0].find('/') == std::string::npos) {
    const std::vector<std::string> names = names_of_commands();
    if (words[0] == "launch") throw UsageError("launch: launch cannot start itself; give another command after --");
    if (std::ranges::find(names, words[0]) == names.end())
      throw UsageError(
          fmt::format("launch: unknown command \"{}\";{} to start another program, give its path or use --program",
                      words[0], suggestion(words[0], names)));
    words.insert(words.begin(), std::filesystem::read_symlink("/proc/self/exe"));
  }
  return words;
}

std::vector<HostSlots> hosts_of(const std::string& text) {
  if (text.empty()) return {};
  const std::string own_name = detail::read_launch_environment().host_name;
  if (!text.starts_with('@')) return parse_hosts(text, own_name);
  const std::string path = text.substr(1);
  constexpr int64_t kMostBytes = 16 << 20;
  try {
    return parse_host_file(read_user_file(path, kMostBytes), path, own_name);
  } catch (const IoError& error) {
    throw_error("--hosts: {}", error.what());
  }
}

// Splits the value of --ssh at spaces.
std::vector<std::string> split_ssh_command(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  if (words.empty()) throw UsageError("launch: --ssh is empty; give a command, such as 'ssh -p 2222'");
  return words;
}

// The environment variables that pass flags of launch on to the processes.
std::vector<std::string> variables_of(const LaunchArguments& arguments) {
  std::vector<std::string> out;
  if (arguments.devices != "auto" && arguments.devices != "all")
    out.push_back("LOCKSTEP_NUM_CPU_DEVICES=" + arguments.devices);
  if (!arguments.platform.empty()) out.push_back("LOCKSTEP_PLATFORM=" + arguments.platform);
  if (!arguments.collectives.empty()) out.push_back("LOCKSTEP_COLLECTIVES=" + arguments.collectives);
  for (const auto& [variable, value] : arguments.runtime) out.push_back(fmt::format("{}={}", variable, value));
  return out;
}

// The environment of the processes, without the variables that describe the job.
detail::Environment environment_of_processes(const LaunchOptions& options) {
  detail::Environment out = own_environment();
  std::erase_if(out, [](const auto& each) { return is_job_variable(each.first); });
  for (const std::string& each : options.variables) {
    const size_t equals = each.find('=');
    out[each.substr(0, equals)] = each.substr(equals + 1);
  }
  return out;
}

// Describes how the command continues after a restart; empty for commands other than train. `training`: its settings, if
// they are known.
std::string describe_restart(const std::vector<std::string>& words, const std::optional<TrainConfig>& training) {
  if (words.empty() || words[0] != "train") return "";
  if (training && !saves_checkpoints(*training)) return "training restarts from the beginning";
  const auto has = [&](std::string_view flag) {
    return std::ranges::any_of(words, [&](const std::string& word) {
      return word == flag || (word.starts_with(flag) && word.substr(flag.size()).starts_with('='));
    });
  };
  if (has("--resume")) return "training restarts as --resume specifies";
  return "training resumes from the last checkpoint";
}

// Returns the settings of the training that is started, if they can be read here. Throws UsageError when they are wrong.
std::optional<TrainConfig> parse_training(const std::vector<std::string>& words) {
  if (words.empty() || words[0] != "train") return std::nullopt;
  CLI::App command;
  ConfigFlags flags;
  add_config_flags(command, flags);
  try {
    command.parse(std::vector<std::string>(words.rbegin(), words.rend() - 1));  // CLI11 expects them in reverse order
  } catch (const CLI::ParseError&) {
    return std::nullopt;  // such as --help
  }
  if (flags.file == "-" || flags.print_config) return std::nullopt;
  TrainConfig config = resolve_config(flags);
  if (flags.print_schedule) return std::nullopt;  // nothing is saved
  return config;
}

// The folder of the run that the processes of a job have made; empty if there is none.
std::string run_folder_of_job(const std::string& job) {
  std::vector<std::string> ignored;
  for (const ListedRun& run : list_runs(ignored))
    if (run.record.jobs.contains(job)) return run.folder;
  return "";
}

// Returns what the user can do after a failure of a job.
std::string describe_recovery(const std::optional<TrainConfig>& training, const std::string& job, bool restarts) {
  std::string out;
  if (training && !saves_checkpoints(*training)) {
    out = training->no_save ? "nothing was saved; remove --no-save to save checkpoints to resume from"
                            : "nothing was saved; use --run-dir DIR to save checkpoints to resume from";
  } else if (training) {
    const bool given = !training->checkpoint_dir.empty() || !training->run_dir.empty();
    const std::string folder = !training->checkpoint_dir.empty() ? training->checkpoint_dir
                               : given                           ? training->run_dir
                                                                 : run_folder_of_job(job);
    const std::vector<int64_t> steps =
        folder.empty() ? std::vector<int64_t>() : detail::list_steps(FileSystem::real(), folder);
    if (steps.empty())
      out = fmt::format("{} no checkpoint: rerunning the command starts from the beginning",
                        folder.empty() ? "there is" : folder + " has");
    else
      out = fmt::format("rerun the command{} to resume from {}/{}",
                        !given                       ? fmt::format(" with --resume {}", folder)
                        : training->resume == "auto" ? ""
                                                     : " without --resume",
                        folder, detail::step_name(steps.back()));
  }
  if (!restarts) out += fmt::format("{}--max-restarts N restarts the processes automatically", out.empty() ? "" : "; ");
  return out;
}

// The timeout that the processes use: the flag, else the variable, else the default.
std::chrono::milliseconds heartbeat_timeout(const LaunchArguments& arguments) {
  constexpr const char* kVariable = "LOCKSTEP_HEARTBEAT_TIMEOUT";
  const auto flag = arguments.runtime.find(kVariable);
  const std::string text =
      flag != arguments.runtime.end() ? flag->second : environment_variable(kVariable).value_or("");
  const double value = std::strtod(text.c_str(), nullptr);
  return value > 0 && value <= 1e6 ? milliseconds(value) : distributed::Options{}.heartbeat_timeout;
}

LaunchOptions options_of(const LaunchArguments& arguments, const std::vector<std::string>& words) {
  LaunchOptions options;
  options.argv = argv_of(arguments, words);
  try {
    options.hosts = hosts_of(arguments.hosts);
    int slots = 0;
    for (const HostSlots& each : options.hosts) slots += each.slots;
    options.processes = arguments.processes > 0 ? arguments.processes : std::max(slots, 1);
    if (options.processes > kMaxProcesses)
      throw UsageError(fmt::format("launch: {} processes; at most {}", options.processes, kMaxProcesses));
    if (!options.hosts.empty()) assign_hosts(options.hosts, options.processes);
  } catch (const Error& error) {
    throw UsageError(fmt::format("launch: {}", error.what()));
  }
  if (arguments.processes == 0 && options.hosts.empty())
    throw UsageError(fmt::format("launch: the number of processes is missing; give -n or --hosts, {}", kLaunchExample));
  const bool all_elsewhere = !options.hosts.empty() && std::ranges::none_of(options.hosts, [](const HostSlots& each) {
    return each.host.empty();
  });
  if (!all_elsewhere && find_program(options.argv[0]).empty())
    throw UsageError(fmt::format("launch: \"{}\" {}", options.argv[0],
                                 options.argv[0].find('/') == std::string::npos
                                     ? "was not found on the PATH; give the path of the program"
                                     : "is not an executable file; check the path"));
  options.variables = variables_of(arguments);
  std::optional<TrainConfig> training;
  if (arguments.program.empty() && words[0].find('/') == std::string::npos) {
    check_command_line(words, environment_of_processes(options));
    if (!all_elsewhere) training = parse_training(words);
  }
  options.ssh = split_ssh_command(arguments.ssh);
  if (arguments.port > 0) options.port = arguments.port;
  options.pin = !arguments.no_pin;
  options.gang = {milliseconds(arguments.grace), milliseconds(arguments.stop_timeout), heartbeat_timeout(arguments)};
  options.max_restarts = arguments.max_restarts;
  options.restart_delay = milliseconds(arguments.restart_delay);
  options.on_restart = arguments.program.empty() ? describe_restart(words, training) : "";
  options.job = "launch-" + make_uid();
  options.on_failure = [training, job = options.job, restarts = arguments.max_restarts > 0] {
    return describe_recovery(training, job, restarts);
  };
  options.first_only = arguments.quiet_ranks;
  options.logs = arguments.logs;
  return options;
}

CLI::Validator seconds(double low) {
  return CLI::Validator(
      [low](const std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        return !text.empty() && *end == '\0' && value >= low && value <= 86400
                   ? ""
                   : fmt::format("\"{}\" is not a time from {:g} to 86400 s", text, low);
      },
      "");
}

// The message about an invalid value of --devices; empty if it is valid.
std::string check_device_count(const std::string& text) {
  if (text == "auto" || text == "all") return "";
  const CLI::Validator number = integer_between(1, detail::kMaxCpuDevices);
  return number(text).empty()
             ? ""
             : fmt::format("\"{}\" is not auto, all or a number from 1 to {}", text, detail::kMaxCpuDevices);
}

std::string check_collectives(std::string text) {
  if (text == "gloo") text = "tcp";  // its name in earlier versions
  return one_of({"auto", "shared", "tcp"})(text);
}

void add_integer_flag(CLI::App& command, const char* name, int& value, int low, int high, const char* help) {
  command.add_option(name, value, help)->check(integer_between(low, high))->type_name("N");
}

void add_seconds_flag(CLI::App& command, const char* name, double& value, const char* help) {
  command.add_option(name, value, help)->check(seconds(0))->type_name("SECONDS");
}

// How many processes start, where, with which devices and which program.
void add_process_flags(CLI::App& command, LaunchArguments& arguments) {
  add_integer_flag(command, "-n,--processes", arguments.processes, 1, kMaxProcesses,
                   "number of processes (default: the slots of --hosts)");
  command.add_option("--devices", arguments.devices, "virtual CPU devices of each process (default: auto)")
      ->type_name("auto|all|N")
      ->check(check_device_count, "");
  add_platform_flag(command, arguments.platform,
                    "device type of each process (default: $LOCKSTEP_PLATFORM, else auto)");
  command
      .add_option("--hosts", arguments.hosts,
                  "hosts and their process slots: a,b:4, or @FILE with a line such as `b slots=4` for each host")
      ->type_name("LIST|@FILE");
  command.add_option("--ssh", arguments.ssh, "command that reaches other hosts, such as 'ssh -p 2222' (default: ssh)")
      ->type_name("COMMAND");
  add_integer_flag(command, "--port", arguments.port, 1, 65535,
                   "port of the coordinator, process 0 (default: a free port)");
  command
      .add_option("--program", arguments.program,
                  "start this program on the PATH instead of lockstep; its arguments follow --")
      ->type_name("NAME");
  command.add_flag("--no-pin", arguments.no_pin, "let every process use all cores instead of a share of them");
}

// Settings that the processes get as environment variables.
void add_setting_flags(CLI::App& command, LaunchArguments& arguments) {
  command.add_option("--collectives", arguments.collectives, "transport of collectives (default: auto)")
      ->type_name("auto|shared|tcp")
      ->check(check_collectives, "");
  // The launched processes are not started by MPI.
  add_runtime_flags(command, arguments.runtime,
                    {SettingGroup::devices, SettingGroup::cache, SettingGroup::communication},
                    {"--collectives", "--mpi-threads"});
}

void add_failure_flags(CLI::App& command, LaunchArguments& arguments) {
  add_integer_flag(command, "--max-restarts", arguments.max_restarts, 0, 1'000'000,
                   "restart all processes up to N times when one is lost or crashes (default: 0)");
  add_seconds_flag(command, "--restart-delay", arguments.restart_delay,
                   "delay before the first restart; doubles with each restart, up to 60 (default: 1)");
  add_seconds_flag(
      command, "--grace", arguments.grace,
      "time after a failure until the other processes get SIGTERM, and from then until they are killed (default: 15)");
  add_seconds_flag(command, "--stop-timeout", arguments.stop_timeout,
                   "time after Ctrl-C or SIGTERM until remaining processes are killed (default: 300)");
}

void add_output_flags(CLI::App& command, LaunchArguments& arguments) {
  command.add_option("--logs", arguments.logs, "folder for the output of each process: rank_0.log, ...")
      ->type_name("DIR");
  command.add_flag("--quiet-ranks", arguments.quiet_ranks, "show only the output of process 0");
}

}  // namespace

void add_launch_command(CLI::App& program, Action& action) {
  CLI::App* command =
      program.add_subcommand("launch", "start the processes of a job here or over SSH, and restart them on failure");
  command->formatter(std::make_shared<HelpFormatter>("-- COMMAND [ARGUMENTS]"));
  auto arguments = std::make_shared<LaunchArguments>();
  add_process_flags(*command, *arguments);
  add_setting_flags(*command, *arguments);
  add_failure_flags(*command, *arguments);
  add_output_flags(*command, *arguments);
  group_flags(*command, "Processes", {"--processes", "--hosts", "--ssh", "--program", "--no-pin"});
  group_flags(*command, "Devices", {"--devices", "--platform"});
  group_flags(*command, "Communication", {"--port", "--collectives"});
  group_flags(*command, "Failures and restarts",
              {"--heartbeat-timeout", "--max-restarts", "--restart-delay", "--grace", "--stop-timeout"});
  group_flags(*command, "Output", {"--logs", "--quiet-ranks"});
  add_footer(*command,
             "COMMAND is a lockstep command, such as train, or the path of a program.\n"
             "The exit code is that of the process that failed first (128 + N if signal N ended it), else 0.");
  add_examples(*command, {"lockstep launch -n 2 --devices 8 -- train run.yaml",
                          "lockstep launch --hosts a:2,b:2 --max-restarts 3 -- train run.yaml"});
  command->callback([arguments, &action] {
    action = [arguments] { return launch(options_of(*arguments, command_after_dashes())); };
  });
}

}  // namespace lockstep::cli
