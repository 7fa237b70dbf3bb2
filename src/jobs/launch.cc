#include "jobs/launch.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
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
#include "cluster/address.h"
#include "cluster/detect.h"
#include "cluster/port_owner.h"
#include "cluster/token.h"
#include "lockstep/distributed.h"

namespace lockstep {
namespace {

constexpr int kMostLaunchPorts = 5;  // tried one after another when somebody else was faster

// A port of this machine that nobody has at the moment.
int free_port() {
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

// For another machine: one that systems do not give away by themselves.
int random_port() {
  std::random_device random;
  return std::uniform_int_distribution<int>(10240, 32767)(random);
}

std::string host_of(const LaunchOptions& options, int process) {
  return options.hosts.empty() ? "" : place(options.hosts, options.processes)[static_cast<size_t>(process)];
}

bool any_elsewhere(const LaunchOptions& options) {
  if (options.hosts.empty()) return false;
  const std::vector<std::string> hosts = place(options.hosts, options.processes);
  return std::ranges::any_of(hosts, [](const std::string& host) { return !host.empty(); });
}

// Where process 0 will listen, as all others can reach it.
std::string coordinator_of(const LaunchOptions& options) {
  const std::string first = host_of(options, 0);
  if (!first.empty()) {
    // A user may stand before the name for ssh: me@host.
    const std::string bare = first.substr(first.find('@') == first.npos ? 0 : first.find('@') + 1);
    return to_string(detail::Address{bare, options.port ? *options.port : random_port()});
  }
  std::string host = "127.0.0.1";
  if (any_elsewhere(options)) {
    const detail::LaunchEnvironment here = detail::read_launch_environment();
    host = here.full_host_name.empty() ? here.host_name : here.full_host_name;
  }
  return to_string(detail::Address{host, options.port ? *options.port : free_port()});
}

// Variables that would speak of another job than this one.
bool is_of_another_job(const std::string& name) {
  for (const char* each : {"LOCKSTEP_COORDINATOR", "LOCKSTEP_COORDINATOR_PORT", "LOCKSTEP_NUM_PROCESSES",
                           "LOCKSTEP_PROCESS_ID", "LOCKSTEP_TOKEN", "LOCKSTEP_TOKEN_FILE", "LOCKSTEP_LOCAL_ID",
                           "LOCKSTEP_LOCAL_COUNT", "JAX_COORDINATOR_BIND_ADDRESS", kLauncherVariable})
    if (name == each) return true;
  return false;
}

// Process 0 could not listen because another program was faster. Only a port of this machine can be looked at.
std::string who_took(const Attempt& attempt, const ProcessEnd& cause) {
  if (cause.process != 0 || cause.ending.signal != 0) return "";
  const detail::Address address = detail::parse_address(attempt.coordinator, "the coordinator's address");
  return address.host == "127.0.0.1" ? detail::port_owner(address.port) : "";
}

// Of a shell on another machine exit code 128 + n may be signal n; 255 is ssh's own, when the connection was lost.
Ending as_seen_there(const Ending& ending) {
  constexpr int kSshFailed = 255;
  if (ending.code == kSshFailed) return {.code = distributed::retry_code()};
  for (const int signal : {SIGKILL, SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL})
    if (ending.code == 128 + signal) return {.signal = signal};
  return ending;
}

void translate_ends(const LaunchOptions& options, std::vector<ProcessEnd>& ends) {
  if (!any_elsewhere(options)) return;
  const std::vector<std::string> hosts = place(options.hosts, options.processes);
  for (ProcessEnd& end : ends)
    if (!hosts[static_cast<size_t>(end.process)].empty()) end.ending = as_seen_there(end.ending);
}

// The exit code after a signal that was passed on: the signal's, unless all ended well before, or one otherwise than
// asked to.
int code_when_stopped(const GangResult& result, Output& output) {
  const int signal = result.stopped_by;
  bool all_well = true;
  std::vector<ProcessEnd> others;
  for (const ProcessEnd& end : result.ends) {
    all_well = all_well && end.ending.well();
    const bool as_asked = end.ending.well() || end.ending.code == 128 + signal || end.ending.signal == signal ||
                          (end.asked && (end.ending.signal == SIGTERM || end.ending.signal == SIGKILL)) ||
                          end.ending.code == 128 + SIGTERM || end.ending.code == distributed::retry_code();
    if (as_asked) continue;
    others.push_back(end);
    others.back().asked = false;
  }
  if (all_well) return 0;
  if (const auto cause = first_cause(others)) {
    output.show_last_lines(others[*cause].process);
    output.say(fmt::format("stopped by {}; meanwhile {}", signal_name(signal), describe_cause(others, *cause)));
    return exit_code(others[*cause].ending);
  }
  output.say(fmt::format("stopped by {}", signal_name(signal)));
  return 128 + signal;
}

// Success is one only when all of the output was written.
int with_all_written(int code, Output& output, SignalPipe& signals) {
  flush(output, signals);
  if (code != 0 || output.error() == 0) return code;
  output.say(fmt::format("the output could not be written: {}; it is incomplete", std::strerror(output.error())));
  flush(output, signals);
  return 1;
}

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000);
}

}  // namespace

std::vector<std::vector<int>> cut_cpus(const std::vector<int>& cpus, int n) {
  const auto parts = static_cast<size_t>(n);
  std::vector<std::vector<int>> out(parts);
  if (cpus.size() < parts) return out;
  auto at = cpus.begin();
  for (size_t i = 0; i < parts; ++i) {
    const auto end = at + static_cast<ptrdiff_t>(cpus.size() / parts + (i < cpus.size() % parts ? 1 : 0));
    out[i].assign(at, end);
    at = end;
  }
  return out;
}

std::vector<int> own_cpus() {
  constexpr size_t kMost = 16384;
  cpu_set_t* const set = CPU_ALLOC(kMost);
  if (!set) return {};
  const size_t bytes = CPU_ALLOC_SIZE(kMost);
  std::vector<int> out;
  if (::sched_getaffinity(0, bytes, set) == 0)
    for (size_t i = 0; i < kMost; ++i)
      if (CPU_ISSET_S(i, bytes, set)) out.push_back(static_cast<int>(i));
  CPU_FREE(set);
  return out;
}

std::chrono::milliseconds delay_before(int number, std::chrono::milliseconds first) {
  constexpr std::chrono::milliseconds kLongest{60'000};
  std::chrono::milliseconds delay = first;
  for (int i = 1; i < number && delay < kLongest; ++i) delay *= 2;
  return std::min(delay, std::max(kLongest, first));
}

std::vector<ChildSpec> child_specs(const LaunchOptions& options, const Attempt& attempt,
                                   const detail::Environment& environment, const std::string& folder) {
  std::vector<std::string> hosts(static_cast<size_t>(options.processes));
  if (!options.hosts.empty()) hosts = place(options.hosts, options.processes);
  const int here = static_cast<int>(std::ranges::count(hosts, ""));
  const std::vector<std::vector<int>> cpus =
      cut_cpus(options.pin && here > 1 ? own_cpus() : std::vector<int>(), std::max(here, 1));

  std::vector<std::string> inherited, ours;  // ours: what other machines have to be told
  for (const auto& [name, value] : environment) {
    if (is_of_another_job(name)) continue;
    const std::string beginning = name + "=", entry = beginning + value;
    if (std::ranges::any_of(options.variables, [&](const std::string& each) { return each.starts_with(beginning); }))
      continue;
    inherited.push_back(entry);
    if (name.starts_with("LOCKSTEP_")) ours.push_back(entry);
  }
  std::vector<ChildSpec> out;
  size_t local = 0;
  for (int i = 0; i < options.processes; ++i) {
    const std::string& host = hosts[static_cast<size_t>(i)];
    std::vector<std::string> own = {fmt::format("LOCKSTEP_COORDINATOR={}", attempt.coordinator),
                                    fmt::format("LOCKSTEP_NUM_PROCESSES={}", options.processes),
                                    fmt::format("LOCKSTEP_PROCESS_ID={}", i)};
    own.insert(own.end(), options.variables.begin(), options.variables.end());
    ChildSpec spec{.environment = inherited, .folder = folder};
    if (host.empty()) {
      spec.argv = options.argv;
      spec.environment.insert(spec.environment.end(), own.begin(), own.end());
      spec.environment.push_back(fmt::format("LOCKSTEP_TOKEN={}", attempt.token));
      spec.environment.push_back(fmt::format("{}={}", kLauncherVariable, attempt.launcher));
      spec.cpus = cpus[local++];
    } else {
      own.insert(own.begin(), ours.begin(), ours.end());
      spec.argv = options.ssh;
      spec.argv.push_back(host);
      spec.argv.push_back(shell_text({folder, own, "LOCKSTEP_TOKEN", options.argv}));
      spec.input = attempt.token + "\n";
      spec.signals_by_input = true;
    }
    out.push_back(std::move(spec));
  }
  return out;
}

int launch(const LaunchOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);  // a job goes on when nobody reads what it prints
  allow_many_children();
  Output output({.processes = options.processes, .first_only = options.first_only, .logs = options.logs});
  SignalPipe signals(gang_signals());
  JoinEventReceiver inbox;
  const detail::Environment environment = detail::read_launch_environment().environment;
  const std::string folder = std::filesystem::current_path();

  int code = 0;
  for (int restarts = 0, ports = 1;;) {
    const Attempt attempt{coordinator_of(options), make_token(), inbox.name()};
    std::vector<ChildSpec> specs = child_specs(options, attempt, environment, folder);
    if (output.can_draw() && !specs[0].signals_by_input) {
      specs[0].terminal_columns = output.columns();
      specs[0].terminal_rows = output.rows();
    }
    GangResult result = run_gang(specs, options.gang, output, signals, inbox);
    translate_ends(options, result.ends);
    if (result.stopped_by != 0) {
      code = code_when_stopped(result, output);
      break;
    }
    const std::optional<size_t> cause = first_cause(result.ends);
    if (!cause) break;
    const ProcessEnd& first = result.ends[*cause];
    const std::string what = describe_cause(result.ends, *cause);
    if (const std::string owner = who_took(attempt, first);
        !owner.empty() && !options.port && ports < kMostLaunchPorts) {
      ++ports;
      output.say(fmt::format("{} has the port of {}; starting again with another", owner, attempt.coordinator));
      output.begin_again("--- started again with another port ---");
      continue;
    }
    if (restarts < options.max_restarts && may_help(first.ending)) {
      const auto delay = delay_before(++restarts, options.restart_delay);
      output.say(what);
      output.say(fmt::format("restart {} of {} in {}{}{}", restarts, options.max_restarts, seconds_text(delay),
                             options.on_restart.empty() ? "" : "; ", options.on_restart));
      if (const int signal = wait_for_stop(delay, output, signals); signal != 0) {
        output.say(fmt::format("stopped by {}", signal_name(signal)));
        code = 128 + signal;
        break;
      }
      output.begin_again(fmt::format("--- restart {} of {} ---", restarts, options.max_restarts));
      continue;
    }
    output.show_last_lines(first.process);
    const std::string hint = options.on_failure && may_help(first.ending) ? options.on_failure() : "";
    output.say(hint.empty() ? what : fmt::format("{}; {}", what, hint));
    if (restarts > 0) output.say(fmt::format("given up after {}", counted(restarts, "restart")));
    code = exit_code(first.ending);
    break;
  }
  return with_all_written(code, output, signals);
}

}  // namespace lockstep
