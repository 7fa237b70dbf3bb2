#include "jobs/launch.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>

#include "base/check.h"
#include "base/file.h"
#include "base/names.h"
#include "base/os/environment.h"
#include "base/os/process.h"
#include "cluster/address.h"
#include "cluster/detect.h"
#include "cluster/job_attempts.h"
#include "cluster/port_owner.h"
#include "cluster/token.h"
#include "lane/cpus.h"
#include "lane/memory.h"
#include "lockstep/distributed.h"

namespace lockstep {
namespace {

constexpr int kMaxPortTries = 5;  // if other programs take the chosen ports

// A port of this host that is currently free.
int find_free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket || ::bind(socket.get(), generic, size) != 0 || ::getsockname(socket.get(), generic, &size) != 0)
    throw_io_error("find", "a free port", errno);
  return ::ntohs(address.sin_port);
}

// A port for another host, below the usual range of ephemeral ports.
int random_port() {
  std::random_device random;
  return std::uniform_int_distribution<int>(10240, 32767)(random);
}

std::string host_of(const LaunchOptions& options, int process) {
  return options.hosts.empty() ? "" : assign_hosts(options.hosts, options.processes)[static_cast<size_t>(process)];
}

bool has_remote_processes(const LaunchOptions& options) {
  if (options.hosts.empty()) return false;
  const std::vector<std::string> hosts = assign_hosts(options.hosts, options.processes);
  return std::ranges::any_of(hosts, [](const std::string& host) { return !host.empty(); });
}

// The coordinator's address (process 0), as all other processes can reach it.
std::string coordinator_address(const LaunchOptions& options) {
  const std::string first = host_of(options, 0);
  if (!first.empty()) {
    // Remove the user name for ssh: me@host.
    const std::string bare = first.substr(first.find('@') == first.npos ? 0 : first.find('@') + 1);
    return to_string(detail::Address{bare, options.port ? *options.port : random_port()});
  }
  std::string host = "127.0.0.1";
  if (has_remote_processes(options)) {
    const detail::LaunchEnvironment here = detail::read_launch_environment();
    host = here.full_host_name.empty() ? here.host_name : here.full_host_name;
  }
  return to_string(detail::Address{host, options.port ? *options.port : find_free_port()});
}

// The program that took the coordinator's port, if process 0 failed because of that; "" if not, or if process 0 runs
// on another host.
std::string find_port_owner(const LaunchAttempt& attempt, const ProcessExit& cause) {
  if (cause.process != 0 || cause.exit_status.signal != 0) return "";
  const detail::Address address = detail::parse_address(attempt.coordinator, "the coordinator's address");
  return address.host == "127.0.0.1" ? detail::port_owner(address.port) : "";
}

// Translates the exit status of ssh: 128 + n is signal n of the remote program, and 255 means that the connection was
// lost.
ExitStatus remote_exit_status(const ExitStatus& exit_status) {
  constexpr int kSshFailed = 255;
  if (exit_status.code == kSshFailed) return {.code = distributed::retry_code()};
  for (const int signal : {SIGKILL, SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL})
    if (exit_status.code == 128 + signal) return {.signal = signal};
  return exit_status;
}

void translate_remote_exits(const LaunchOptions& options, std::vector<ProcessExit>& exits) {
  if (!has_remote_processes(options)) return;
  const std::vector<std::string> hosts = assign_hosts(options.hosts, options.processes);
  for (ProcessExit& end : exits)
    if (!hosts[static_cast<size_t>(end.process)].empty()) end.exit_status = remote_exit_status(end.exit_status);
}

// The exit code after a forwarded stop signal: 0 if all processes succeeded, that of a process that failed for another
// reason, else 128 + signal.
int code_when_stopped(const GangResult& result, JobOutput& output) {
  const int signal = result.stopped_by;
  bool all_succeeded = true;
  std::vector<ProcessExit> failed;
  for (const ProcessExit& end : result.exits) {
    const ExitStatus& status = end.exit_status;
    all_succeeded = all_succeeded && status.success();
    const bool expected = status.success() || status.code == 128 + signal || status.signal == signal ||
                          (end.signalled && (status.signal == SIGTERM || status.signal == SIGKILL)) ||
                          status.code == 128 + SIGTERM || status.code == distributed::retry_code();
    if (expected) continue;
    failed.push_back(end);
    failed.back().signalled = false;
  }
  if (all_succeeded) return 0;
  if (const auto cause = find_cause(failed)) {
    output.show_last_lines(failed[*cause].process);
    output.print_message(
        fmt::format("stopped by {}; meanwhile {}", signal_name(signal), describe_cause(failed, *cause)));
    return exit_code(failed[*cause].exit_status);
  }
  output.print_message(fmt::format("stopped by {}{}", signal_name(signal),
                                   result.killed ? "; the second signal killed the processes without saving" : ""));
  return 128 + signal;
}

// Flushes the output. Returns `code`, or 1 if it is 0 and some output could not be written.
int flush_or_fail(int code, JobOutput& output, SignalPipe& signals) {
  flush(output, signals);
  if (code != 0 || output.error() == 0) return code;
  output.print_message(fmt::format("cannot write the output: {}; it is incomplete", std::strerror(output.error())));
  flush(output, signals);
  return 1;
}

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000);
}

}  // namespace

std::chrono::milliseconds restart_backoff(int number, std::chrono::milliseconds first) {
  constexpr std::chrono::milliseconds kMaxDelay{60'000};
  std::chrono::milliseconds delay = first;
  for (int i = 1; i < number && delay < kMaxDelay; ++i) delay *= 2;
  return std::min(delay, std::max(kMaxDelay, first));
}

bool is_job_variable(const std::string& name) {
  for (const char* each :
       {"LOCKSTEP_COORDINATOR", "LOCKSTEP_COORDINATOR_PORT", "LOCKSTEP_NUM_PROCESSES", "LOCKSTEP_PROCESS_ID",
        "LOCKSTEP_TOKEN", "LOCKSTEP_TOKEN_FILE", "LOCKSTEP_LOCAL_ID", "LOCKSTEP_LOCAL_COUNT", "LOCKSTEP_RESTARTS",
        "JAX_COORDINATOR_BIND_ADDRESS", kLauncherVariable, kJobVariable})
    if (name == each) return true;
  return false;
}

namespace {

// Processes that are not pinned would divide the cores themselves; an explicit number of threads prevents that. Empty if
// they are pinned, or if the user has set a number.
std::string thread_variable(const LaunchOptions& options, const detail::Environment& environment) {
  const std::string name = "LOCKSTEP_CPU_THREADS", prefix = name + "=";
  const bool given = environment.contains(name) || std::ranges::any_of(options.variables, [&](const std::string& each) {
                       return each.starts_with(prefix);
                     });
  return options.pin || given ? "" : prefix + std::to_string(available_cpus());
}

}  // namespace

std::vector<ChildSpec> child_specs(const LaunchOptions& options, const LaunchAttempt& attempt,
                                   const detail::Environment& environment, const std::string& folder) {
  std::vector<std::string> hosts(static_cast<size_t>(options.processes));
  if (!options.hosts.empty()) hosts = assign_hosts(options.hosts, options.processes);
  const int local_count = static_cast<int>(std::ranges::count(hosts, ""));
  const bool pin = options.pin && local_count > 1;
  const std::vector<std::vector<int>> cpus =
      split_cpus(pin ? cpu_places(affinity_cpus()) : std::vector<CpuPlace>(), std::max(local_count, 1));

  std::vector<std::string> inherited, lockstep_variables;  // the latter are passed to other hosts
  for (const auto& [name, value] : environment) {
    if (is_job_variable(name)) continue;
    const std::string prefix = name + "=", entry = prefix + value;
    if (std::ranges::any_of(options.variables, [&](const std::string& each) { return each.starts_with(prefix); }))
      continue;
    inherited.push_back(entry);
    if (name.starts_with("LOCKSTEP_")) lockstep_variables.push_back(entry);
  }
  const std::string threads = thread_variable(options, environment);
  std::vector<ChildSpec> out;
  size_t local = 0;
  for (int i = 0; i < options.processes; ++i) {
    const std::string& host = hosts[static_cast<size_t>(i)];
    std::vector<std::string> own = {fmt::format("LOCKSTEP_COORDINATOR={}", attempt.coordinator),
                                    fmt::format("LOCKSTEP_NUM_PROCESSES={}", options.processes),
                                    fmt::format("LOCKSTEP_PROCESS_ID={}", i)};
    if (attempt.restarts > 0) own.push_back(fmt::format("LOCKSTEP_RESTARTS={}", attempt.restarts));
    if (!options.job.empty())
      own.push_back(
          fmt::format("{}={}", kJobVariable, job_variable(environment, options.job, std::to_string(attempt.number))));
    own.insert(own.end(), options.variables.begin(), options.variables.end());
    ChildSpec spec{.environment = inherited, .folder = folder};
    if (host.empty()) {
      spec.argv = options.argv;
      spec.environment.insert(spec.environment.end(), own.begin(), own.end());
      spec.environment.push_back(fmt::format("LOCKSTEP_TOKEN={}", attempt.token));
      spec.environment.push_back(fmt::format("{}={}", kLauncherVariable, attempt.launcher));
      if (!threads.empty()) spec.environment.push_back(threads);
      spec.cpus = cpus[local++];
    } else {
      own.insert(own.begin(), lockstep_variables.begin(), lockstep_variables.end());
      spec.argv = options.ssh;
      spec.argv.push_back(host);
      spec.argv.push_back(remote_shell_command({folder, own, "LOCKSTEP_TOKEN", options.argv}));
      spec.input = attempt.token + "\n";
      spec.signals_by_input = true;
    }
    out.push_back(std::move(spec));
  }
  return out;
}

int launch(const LaunchOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);  // the job continues if the reader of its output closes the pipe
  raise_open_file_limit();
  JobOutput output({.processes = options.processes, .first_only = options.first_only, .logs = options.logs});
  SignalPipe signals(gang_signals());
  JoinEventReceiver join_events;
  const detail::Environment environment = own_environment();
  const std::string folder = std::filesystem::current_path();

  int code = 0;
  for (int restarts = 0, ports = 1, number = 0;; ++number) {
    const LaunchAttempt attempt{coordinator_address(options), make_token(), join_events.address(), number, restarts};
    std::vector<ChildSpec> specs = child_specs(options, attempt, environment, folder);
    if (output.can_draw() && !specs[0].signals_by_input) {
      specs[0].terminal_columns = output.columns();
      specs[0].terminal_rows = output.rows();
    }
    GangResult result = run_gang(specs, options.gang, output, signals, join_events);
    translate_remote_exits(options, result.exits);
    if (result.stopped_by != 0) {
      code = code_when_stopped(result, output);
      break;
    }
    const std::optional<size_t> cause = find_cause(result.exits);
    if (!cause) break;
    const ProcessExit& first = result.exits[*cause];
    const std::string description = describe_cause(result.exits, *cause);
    if (const std::string owner = find_port_owner(attempt, first);
        !owner.empty() && !options.port && ports < kMaxPortTries) {
      ++ports;
      output.print_message(
          fmt::format("{} has taken the port of {}; restarting with another port", owner, attempt.coordinator));
      output.mark_restart("--- restart with another port ---");
      continue;
    }
    if (restarts < options.max_restarts && restart_may_help(first.exit_status)) {
      const auto delay = restart_backoff(++restarts, options.restart_delay);
      output.print_message(description);
      output.print_message(fmt::format("restart {} of {} in {}{}{}", restarts, options.max_restarts,
                                       seconds_text(delay), options.on_restart.empty() ? "" : "; ",
                                       options.on_restart));
      if (const int signal = wait_for_stop(delay, output, signals); signal != 0) {
        output.print_message(fmt::format("stopped by {}", signal_name(signal)));
        code = 128 + signal;
        break;
      }
      output.mark_restart(fmt::format("--- restart {} of {} ---", restarts, options.max_restarts));
      continue;
    }
    output.show_last_lines(first.process);
    const std::string hint = options.on_failure && restart_may_help(first.exit_status) ? options.on_failure() : "";
    output.print_message(hint.empty() ? description : fmt::format("{}; {}", description, hint));
    if (restarts > 0) output.print_message(fmt::format("giving up after {}", counted(restarts, "restart")));
    code = exit_code(first.exit_status);
    break;
  }
  return flush_or_fail(code, output, signals);
}

}  // namespace lockstep
