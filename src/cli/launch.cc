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
#include "cli/choice_check.h"
#include "cli/command.h"
#include "cli/config_flags.h"
#include "cli/devices_flag.h"
#include "cli/number_check.h"
#include "cluster/detect.h"
#include "data/process.h"
#include "jobs/launch.h"
#include "lockstep/distributed.h"
#include "lockstep/error.h"
#include "train/checkpoint_folder.h"

namespace lockstep::cli {
namespace {

struct LaunchArguments {
  int processes = 0;  // 0: not given
  std::string devices = "auto", platform, hosts, ssh = "ssh", program, collectives;
  int lanes = 0, port = 0;
  double heartbeat_timeout = 0, collective_timeout = 0;  // 0: not given
  double grace = 15, stop_timeout = 300, restart_delay = 1;
  int max_restarts = 0;
  std::string logs;
  bool no_pin = false, no_tls = false, quiet_ranks = false;
};

constexpr const char* kExample = "such as `lockstep launch -n 2 --devices 8 -- train --model mlp`";

// The words after "--".
std::vector<std::string>& launched_command() {
  static std::vector<std::string> words;
  return words;
}

std::vector<std::string> subcommands() {
  return {
#define COMMAND(name, title) #name,
#include "cli/commands.def"
#undef COMMAND
  };
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// The program and its arguments.
std::vector<std::string> argv_of(const LaunchArguments& arguments, std::vector<std::string> words) {
  if (!arguments.program.empty()) {
    words.insert(words.begin(), arguments.program);
  } else if (words.empty()) {
    throw UsageError(fmt::format("launch: no command after --; write one, {}", kExample));
  } else if (words[0].find('/') == std::string::npos) {
    const std::vector<std::string> names = subcommands();
    if (words[0] == "launch") throw UsageError("launch: launch cannot start itself; write the command that it starts");
    if (std::ranges::find(names, words[0]) == names.end())
      throw UsageError(fmt::format(
          "launch: lockstep has no command \"{}\";{} another program is started by its path, or with --program",
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

// As a shell would cut it without quotes.
std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  if (words.empty()) throw UsageError("launch: --ssh is empty; give a command, such as 'ssh -p 2222'");
  return words;
}

std::vector<std::string> variables_of(const LaunchArguments& arguments) {
  std::vector<std::string> out;
  if (arguments.devices != "auto" && arguments.devices != "all")
    out.push_back("LOCKSTEP_NUM_CPU_DEVICES=" + arguments.devices);
  if (!arguments.platform.empty()) out.push_back("LOCKSTEP_PLATFORM=" + arguments.platform);
  if (arguments.lanes > 0) out.push_back(fmt::format("LOCKSTEP_CPU_LANES={}", arguments.lanes));
  if (!arguments.collectives.empty()) out.push_back("LOCKSTEP_COLLECTIVES=" + arguments.collectives);
  if (arguments.no_tls) out.push_back("LOCKSTEP_TLS=off");
  if (arguments.heartbeat_timeout > 0)
    out.push_back(fmt::format("LOCKSTEP_HEARTBEAT_TIMEOUT={}", arguments.heartbeat_timeout));
  if (arguments.collective_timeout > 0)
    out.push_back(fmt::format("LOCKSTEP_COLLECTIVE_TIMEOUT={}", arguments.collective_timeout));
  return out;
}

// What a restart means for the command.
std::string on_restart(const std::vector<std::string>& words) {
  if (words.empty() || words[0] != "train") return "";
  const auto has = [&](std::string_view flag) {
    return std::ranges::any_of(words, [&](const std::string& word) {
      return word == flag || (word.starts_with(flag) && word.substr(flag.size()).starts_with('='));
    });
  };
  if (has("--resume")) return "training begins as --resume says";
  if (has("--checkpoint-dir")) return "training goes on from the last checkpoint";
  return "training goes on from the last checkpoint, where there is a checkpoint_dir, else from the beginning";
}

// The settings of the training that is started, where they can be read here. Throws UsageError when they are wrong.
std::optional<TrainConfig> training_of(const std::vector<std::string>& words) {
  if (words.empty() || words[0] != "train") return std::nullopt;
  CLI::App command;
  ConfigFlags flags;
  add_config_flags(command, flags);
  try {
    command.parse(std::vector<std::string>(words.rbegin(), words.rend() - 1));  // the parser wants the last one first
  } catch (const CLI::ParseError&) {
    return std::nullopt;  // such as --help
  }
  if (flags.file == "-" || flags.print_config) return std::nullopt;
  return resolve_config(flags);
}

// What the user can do after a failure.
std::string after_failure(const std::optional<TrainConfig>& training, bool restarts) {
  std::string out;
  if (training && !training->checkpoint_dir.empty()) {
    const std::string& folder = training->checkpoint_dir;
    const std::vector<int64_t> steps = detail::list_steps(FileSystem::real(), folder);
    out = steps.empty() ? fmt::format("no checkpoint was saved in {}: the same command begins anew", folder)
                        : fmt::format("the same command{} goes on from {}/{}",
                                      training->resume == "auto" ? "" : " without --resume", folder,
                                      detail::step_name(steps.back()));
  } else if (training) {
    out = "nothing was saved: --checkpoint-dir DIR keeps checkpoints to go on from";
  }
  if (!restarts) out += fmt::format("{}--max-restarts N starts the processes again by itself", out.empty() ? "" : "; ");
  return out;
}

// What the processes use: the flag, else the variable, else the default.
std::chrono::milliseconds heartbeat_timeout(const LaunchArguments& arguments) {
  const char* const text = std::getenv("LOCKSTEP_HEARTBEAT_TIMEOUT");
  double value = arguments.heartbeat_timeout;
  if (value <= 0 && text) value = std::strtod(text, nullptr);
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
    if (options.processes > kMostProcesses)
      throw UsageError(fmt::format("launch: {} processes; at most {}", options.processes, kMostProcesses));
    if (!options.hosts.empty()) place(options.hosts, options.processes);
  } catch (const Error& error) {
    throw UsageError(fmt::format("launch: {}", error.what()));
  }
  if (arguments.processes == 0 && options.hosts.empty())
    throw UsageError(fmt::format("launch: how many processes? give -n or --hosts, {}", kExample));
  const bool all_elsewhere = !options.hosts.empty() && std::ranges::none_of(options.hosts, [](const HostSlots& each) {
    return each.host.empty();
  });
  if (!all_elsewhere && detail::find_program(options.argv[0]).empty())
    throw UsageError(fmt::format(
        "launch: there is no program \"{}\" that may be run{}", options.argv[0],
        options.argv[0].find('/') == std::string::npos ? " on the PATH; give its path" : "; correct its path"));
  std::optional<TrainConfig> training;
  if (arguments.program.empty() && words[0].find('/') == std::string::npos) {
    check_command_line(words);
    if (!all_elsewhere) training = training_of(words);
  }
  options.ssh = words_of(arguments.ssh);
  if (arguments.port > 0) options.port = arguments.port;
  options.variables = variables_of(arguments);
  options.pin = !arguments.no_pin;
  options.gang = {milliseconds(arguments.grace), milliseconds(arguments.stop_timeout), heartbeat_timeout(arguments)};
  options.max_restarts = arguments.max_restarts;
  options.restart_delay = milliseconds(arguments.restart_delay);
  options.on_restart = arguments.program.empty() ? on_restart(words) : "";
  options.on_failure = [training, restarts = arguments.max_restarts > 0] { return after_failure(training, restarts); };
  options.first_only = arguments.quiet_ranks;
  options.logs = arguments.logs;
  return options;
}

// Mistakes in the number of processes that the parser would report as something else.
void check_processes_flag(char** begin, char** end) {
  for (char** at = begin; at != end; ++at) {
    const std::string_view word = *at;
    if (word == "-np" || word.starts_with("-np=") || word == "--np")
      throw UsageError(fmt::format("launch: no flag {}; did you mean -n? {}", word, kExample));
    if (word != "-n" && word != "--processes") continue;
    const std::string_view next = at + 1 == end ? "" : at[1];
    const bool number = !next.empty() && (next[0] != '-' || (next.size() > 1 && next[1] >= '0' && next[1] <= '9'));
    if (!number) throw UsageError(fmt::format("launch: {} needs a number, {}", word, kExample));
  }
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

}  // namespace

int take_launched_command(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "launch") return argc;
  char** const end = argv + argc;
  char** const dashes = std::find(argv, end, std::string_view("--"));
  check_processes_flag(argv + 2, dashes);
  if (dashes != end) {
    launched_command().assign(dashes + 1, end);
    return static_cast<int>(dashes - argv);
  }
  const auto asks = [](std::string_view word) { return word == "--help" || word == "-h"; };
  if (!std::any_of(argv, end, asks) && !std::any_of(argv, end, [](std::string_view word) {
        return word == "--program" || word.starts_with("--program=");
      }))
    throw UsageError(fmt::format("launch: no command after --; write one, {}", kExample));
  return argc;
}

void add_launch_command(CLI::App& program, Action& action) {
  CLI::App* command =
      program.add_subcommand("launch", "start the processes of one job, watch over them, and start them again");
  auto arguments = std::make_shared<LaunchArguments>();
  const auto number = [&](const char* name, int& value, int low, int high, const char* help) {
    command->add_option(name, value, help)->check(integer_between(low, high))->type_name("N");
  };
  const auto time = [&](const char* name, double& value, double low, const char* help) {
    command->add_option(name, value, help)->check(seconds(low))->type_name("SECONDS");
  };
  number("-n,--processes", arguments->processes, 1, kMostProcesses,
         "how many processes (default: as many as --hosts has slots)");
  command->add_option("--devices", arguments->devices, "virtual devices of each process (default: auto)")
      ->type_name("auto|all|N")
      ->check(
          [](const std::string& text) -> std::string {
            return text == "auto" || text == "all" ||
                           integer_between(1, detail::kMostCpuDevices)(const_cast<std::string&>(text)).empty()
                       ? ""
                       : "\"" + text + "\" is not auto, all or a number of at least 1";
          },
          "");
  add_platform_flag(*command, arguments->platform,
                    "what each process computes on (default: $LOCKSTEP_PLATFORM, else auto)");
  number("--lanes", arguments->lanes, 1, 1024, "lanes of each process, which share its cores (default: 1)");
  command
      ->add_option("--hosts", arguments->hosts,
                   "machines and how many processes each may have: a,b:4, or @FILE with a line `b slots=4` for each")
      ->type_name("LIST|@FILE");
  command->add_option("--ssh", arguments->ssh, "how to get to other machines (default: ssh)")->type_name("COMMAND");
  number("--port", arguments->port, 1, 65535, "where process 0 listens (default: one that is free)");
  command
      ->add_option("--program", arguments->program,
                   "another program to start, by its name on the PATH; what follows -- are its arguments")
      ->type_name("NAME");
  command->add_flag("--no-pin", arguments->no_pin, "let all processes use all cores, instead of a share each");
  command->add_option("--collectives", arguments->collectives, "how processes exchange arrays (default: auto)")
      ->check(one_of({"auto", "shared", "tcp", "gloo"}));
  command->add_flag("--no-tls", arguments->no_tls,
                    "do not encrypt the control plane: its messages can be read, and the job joined, on the way");
  time("--heartbeat-timeout", arguments->heartbeat_timeout, 0.001,
       "a process that is silent for so long is lost (default: 10)");
  time("--collective-timeout", arguments->collective_timeout, 0.001,
       "how long processes wait for each other in a step (default: 60)");
  number("--max-restarts", arguments->max_restarts, 0, 1'000'000,
         "start all processes again, up to so many times, when one is lost or crashes (default: 0)");
  time("--restart-delay", arguments->restart_delay, 0,
       "before the first restart; doubles with each, up to 60 (default: 1)");
  time("--grace", arguments->grace, 0,
       "after a failure the others have so long to stop by themselves, and as long again before they are killed "
       "(default: 15)");
  time("--stop-timeout", arguments->stop_timeout, 0,
       "so long after Ctrl-C or SIGTERM what is left is killed (default: 300)");
  command->add_option("--logs", arguments->logs, "a folder for what each process prints: rank_0.log, ...")
      ->type_name("DIR");
  command->add_flag("--quiet-ranks", arguments->quiet_ranks, "show what process 0 prints only");
  command->footer(
      "lockstep launch [OPTIONS] -- COMMAND [ARGUMENTS]: COMMAND is one of lockstep's own, or the path of a program.\n"
      "Exit codes: that of the process that failed first, 128 + N when signal N ended it; 0 when all went well");
  command->callback(
      [arguments, &action] { action = [arguments] { return launch(options_of(*arguments, launched_command())); }; });
}

}  // namespace lockstep::cli
