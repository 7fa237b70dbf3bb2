#include "jobs/local/client.h"

#include <poll.h>

#include <chrono>

#include "base/check.h"
#include "jobs/local/detach.h"
#include "jobs/local/lock.h"
#include "jobs/local/log_reader.h"
#include "jobs/local/replica.h"
#include "jobs/local/socket.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr seconds kDeadline{30};         // for the daemon to be there and to answer
constexpr seconds kDaemonStartAgain{2};  // it is not there by then: it died at once, or another one was about to end
constexpr int kPause = 5;                // milliseconds between attempts to reach it

// Why the daemon does not start.
std::string last_words(const StateDir& state) {
  std::string out;
  LogReader(state.daemon_log(), 1).read([&](std::string_view text) {
    out += text;
    return true;
  });
  while (out.ends_with('\n')) out.pop_back();
  return out.empty() ? "it has not said why" : out;
}

}  // namespace

void ensure_daemon(const std::string& state, const std::string& program, const detail::Environment& environment) {
  if (lock_holder(state + "/daemon.lock")) return;
  std::vector<std::string> variables;
  for (const auto& [name, value] : kept_variables(environment)) variables.push_back(name + "=" + value);
  start_detached(program, {"__daemon", state}, variables);
}

DaemonClient::DaemonClient(const StateDir& state, std::string program, const detail::Environment& environment)
    : state_(state), program_(std::move(program)), environment_(environment) {}

void DaemonClient::ensure() { ensure_daemon(state_.path(), program_, environment_); }

std::string DaemonClient::request(const nlohmann::ordered_json& request) {
  const Clock::time_point begin = Clock::now();
  Clock::time_point start_at = begin;
  while (Clock::now() < begin + kDeadline) {
    if (const Descriptor socket = connect_to(state_)) {
      try {
        return exchange(socket, request, kDeadline);
      } catch (const DaemonGone&) {  // it was killed, or about to end; every request may be sent twice
        continue;
      }
    }
    if (Clock::now() >= start_at) {
      ensure();
      start_at = Clock::now() + kDaemonStartAgain;
    }
    ::poll(nullptr, 0, kPause);
  }
  throw IoError(fmt::format("jobs: the daemon cannot be reached at {}; its log ends with: {}", state_.socket(),
                            last_words(state_)));
}

}  // namespace lockstep
