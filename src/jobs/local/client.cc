#include "jobs/local/client.h"

#include <poll.h>

#include <chrono>

#include "base/check.h"
#include "base/os/environment.h"
#include "base/os/process.h"
#include "jobs/local/lock.h"
#include "jobs/local/log_reader.h"
#include "jobs/local/replica.h"
#include "jobs/local/socket.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr seconds kDeadline{30};           // to reach the daemon, and for its response
constexpr seconds kDaemonRestartDelay{2};  // not reachable by then: it died, or the previous one was just exiting
constexpr int kRetryMs = 5;                // between attempts to connect

// The last line of the daemon's log, which may explain why it does not start.
std::string last_log_line(const StateDir& state) {
  std::string out;
  LogReader(state.daemon_log(), 1).read([&](std::string_view text) {
    out += text;
    return true;
  });
  while (out.ends_with('\n')) out.pop_back();
  return out.empty() ? "(empty)" : out;
}

}  // namespace

void ensure_daemon(const std::string& state, const std::string& program, const detail::Environment& environment) {
  if (lock_holder(state + "/daemon.lock")) return;
  start_detached({.program = program,
                  .argv = {"lockstep", "__daemon", state},
                  .environment = environment_strings(inherited_variables(environment)),
                  .folder = "/"});
}

DaemonClient::DaemonClient(const StateDir& state, std::string program, const detail::Environment& environment)
    : state_(state), program_(std::move(program)), environment_(environment) {}

void DaemonClient::ensure() { ensure_daemon(state_.path(), program_, environment_); }

std::string DaemonClient::request(const nlohmann::ordered_json& request) {
  const Clock::time_point begin = Clock::now();
  Clock::time_point start_at = begin;
  while (Clock::now() < begin + kDeadline) {
    if (const Descriptor socket = connect_to_daemon(state_)) {
      try {
        return send_request(socket, request, kDeadline);
      } catch (const DaemonGone&) {  // it was killed or was exiting; every request may be sent twice
        continue;
      }
    }
    if (Clock::now() >= start_at) {
      ensure();
      start_at = Clock::now() + kDaemonRestartDelay;
    }
    ::poll(nullptr, 0, kRetryMs);
  }
  throw IoError(fmt::format("jobs: cannot reach the daemon at {}; the last line of its log: {}", state_.socket(),
                            last_log_line(state_)));
}

}  // namespace lockstep
