#include "jobs/local/daemon.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <list>

#include "base/json.h"
#include "base/os/environment.h"
#include "base/os/process.h"
#include "cluster/detect.h"
#include "jobs/local/pod_log.h"
#include "jobs/local/replica.h"
#include "jobs/local/socket.h"
#include "jobs/local/supervisor.h"
#include "jobs/signals.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr int64_t kDaemonLogLimit = 1 << 20;
constexpr size_t kMaxClients = 64;
constexpr seconds kClientDeadline{10};  // for a request and its response together
constexpr seconds kFolderCheck{2};      // how often to check that the state folder still exists

std::chrono::milliseconds idle_time() {
  const std::optional<std::string> text = environment_variable("LOCKSTEP_DAEMON_IDLE");
  char* end = nullptr;
  const double value = text ? std::strtod(text->c_str(), &end) : 0;
  if (!text || end == text->c_str() || !(value >= 0)) return seconds(60);
  return std::chrono::milliseconds(static_cast<int64_t>(std::min(value, 86400.0) * 1000));
}

struct Client {
  Descriptor socket;
  Clock::time_point deadline;
  std::string in, out;  // received bytes; bytes still to send
  bool answered = false, closed = false;
};

class Daemon {
 public:
  Daemon(const StateDir& state, Descriptor listener, PodLog& log)
      : state_(state),
        listener_(std::move(listener)),
        log_(log),
        signals_({SIGTERM, SIGINT, SIGHUP}),
        supervisor_(state, FileSystem::real(),
                    {.start_shim = [this](const PodFolder& folder) { start_shim(folder); },
                     .log = [this](std::string_view text) { log_line(text); }}) {}

  void log_line(std::string_view text) {
    log_.write(fmt::format("{:%Y-%m-%dT%H:%M:%SZ} {}\n", fmt::gmtime(std::time(nullptr)), text));
  }

  void run() {
    const std::chrono::milliseconds idle = idle_time();
    Clock::time_point last_use = Clock::now();
    for (;;) {
      Supervisor::Wakeup next = supervisor_.step();
      const Clock::time_point time = Clock::now();
      if (!supervisor_.is_idle() || !clients_.empty()) last_use = time;
      if (time >= last_use + idle) return log_line("idle: exiting");
      const Clock::time_point until = std::min({next.time, last_use + idle, time + kFolderCheck});
      if (!wait(next.processes, until)) return;
      if (::access(state_.daemon_lock().c_str(), F_OK) != 0) return;  // the state folder was deleted
    }
  }

 private:
  void start_shim(const PodFolder& folder) {
    start_detached({.program = kOwnProgram,
                    .argv = {"lockstep", "__shim", folder.path()},
                    .environment = environment_strings(inherited_variables(own_environment())),
                    .folder = "/"});
  }

  // Handles clients until `until`, or until one of the processes exits. Returns false after a signal to stop.
  bool wait(const std::vector<Descriptor>& processes, Clock::time_point until) {
    for (const Client& client : clients_) until = std::min(until, client.deadline);
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
    const bool full = clients_.size() >= kMaxClients;
    fds.push_back({full ? -1 : listener_.get(), POLLIN, 0});
    for (const Client& client : clients_)
      fds.push_back({client.socket.get(), static_cast<short>(client.out.empty() ? POLLIN : POLLOUT), 0});
    for (const Descriptor& process : processes) fds.push_back({process.get(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (::poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 60'000))) < 0 && errno != EINTR)
      throw_io_error("wait for", "jobs", errno);
    if (!signals_.take().empty()) {
      log_line("stopped by a signal; replicas keep running");
      return false;
    }
    for (Client& client : clients_) serve(client);
    if (fds[1].revents != 0) accept_all();
    clients_.remove_if([](const Client& client) { return client.closed; });
    return true;
  }

  void accept_all() {
    for (size_t i = 0; i < kMaxClients && clients_.size() < kMaxClients; ++i) {
      Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) return;
      if (!is_own_user(socket)) {
        log_line("rejected a connection from another user");
        continue;
      }
      clients_.push_back({std::move(socket), Clock::now() + kClientDeadline, "", ""});
      serve(clients_.back());
    }
  }

  // Receives and sends as much as is possible without blocking.
  void serve(Client& client) {
    std::array<char, 65536> bytes;
    while (!client.answered) {
      const ssize_t n = ::recv(client.socket.get(), bytes.data(), bytes.size(), 0);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (n <= 0) return static_cast<void>(client.closed = true);
      client.in.append(bytes.data(), static_cast<size_t>(n));
      if (client.in.size() > kMaxMessageBytes) return static_cast<void>(client.closed = true);
      if (client.in.find('\n') != client.in.npos) respond(client);
    }
    while (!client.out.empty()) {
      const ssize_t n = ::send(client.socket.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (n < 0) return static_cast<void>(client.closed = true);
      client.out.erase(0, static_cast<size_t>(n));
    }
    client.closed = client.closed || (client.answered && client.out.empty()) || Clock::now() >= client.deadline;
  }

  void respond(Client& client) {
    nlohmann::ordered_json out;
    const auto fail = [&](const char* kind, const std::exception& error) {
      out = {{"error", error.what()}, {"kind", kind}};
    };
    try {
      out["result"] =
          supervisor_.handle(parse_json<nlohmann::ordered_json>(client.in, "the request", {.bytes = kMaxMessageBytes}));
    } catch (const IoError& error) {
      fail("IoError", error);
    } catch (const std::exception& error) {
      fail("Error", error);
    }
    client.answered = true;
    client.out = out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }

  const StateDir& state_;
  Descriptor listener_;
  PodLog& log_;
  SignalPipe signals_;
  Supervisor supervisor_;
  std::list<Client> clients_;
};

}  // namespace

int run_daemon(const std::string& folder) {
  ::signal(SIGPIPE, SIG_IGN);
  if (!FileSystem::real().exists(folder)) return 0;  // deleted in the meantime; StateDir would create it again
  const StateDir state(folder);
  const std::optional<FileLock> lock = FileLock::try_acquire(state.daemon_lock());
  if (!lock) return 0;
  PodLog log(FileSystem::real(), state.daemon_log(), kDaemonLogLimit);
  try {
    Daemon daemon(state, listen_for_clients(state), log);
    daemon.log_line(fmt::format("started as process {}", ::getpid()));
    daemon.run();
  } catch (const std::exception& error) {
    log.write(fmt::format("lockstep: {}\n", error.what()));
    return 1;
  }
  return 0;
}

}  // namespace lockstep
