#include "servers/attack.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <utility>

#include "servers/attackers.h"
#include "support/process_memory.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kHonestLimit{60};

// The answer to a request on a new connection; as far as it arrived within the limit.
std::string ask(int port, const std::string& request, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = ::htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const auto wait = [&](short events) {
    pollfd ready{fd, events, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    return left > 0 && ::poll(&ready, 1, static_cast<int>(left)) > 0;
  };
  std::string out;
  if (wait(POLLOUT) && ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) == std::ssize(request)) {
    char bytes[16384];
    while (wait(POLLIN)) {
      const ssize_t count = ::recv(fd, bytes, sizeof(bytes), 0);
      if (count <= 0) break;
      out.append(bytes, static_cast<size_t>(count));
    }
  }
  ::close(fd);
  return out;
}

// The memory of a process once it hardly changes any more: a training grows in its first steps.
int64_t settled_bytes(pid_t process) {
  int64_t bytes = resident_bytes(process);
  for (int i = 0; i < 20; ++i) {
    ::poll(nullptr, 0, 500);
    const int64_t before = std::exchange(bytes, resident_bytes(process));
    if (std::abs(bytes - before) < 1'000'000) break;
  }
  return bytes;
}

bool is_ok(const std::string& answer) { return answer.starts_with("HTTP/1.1 200 "); }

}  // namespace

double AttackReport::health_at(double share) const {
  if (health.empty()) return 0;
  const auto at = static_cast<size_t>(share * static_cast<double>(health.size()));
  return health[std::min(at, health.size() - 1)];
}

std::string AttackReport::text() const {
  return fmt::format(
      "health: {} requests, {} failed, median {:.1f} ms, 99.9 % within {:.1f} ms, longest {:.1f} ms; honest requests: "
      "{} "
      "of {} served; memory: {:.1f} MB quiet, {:.1f} MB at most{}",
      health.size(), health_failed, 1e3 * health_at(0.5), 1e3 * health_at(0.999), 1e3 * health_at(1), honest_served,
      honest, 1e-6 * static_cast<double>(quiet_bytes), 1e-6 * static_cast<double>(most_bytes),
      first_failure.empty() ? "" : "; first failure: " + first_failure);
}

AttackReport attack(const AttackTarget& target, const AttackSize& size) {
  AttackReport out;
  const std::string health = "GET " + target.health + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  for (int i = 0; i < 3; ++i) ask(target.port, target.honest, kHonestLimit), ask(target.port, health, kHealthLimit);
  out.quiet_bytes = settled_bytes(target.process);
  const pid_t attackers = start_attackers(target, size);
  const auto end = Clock::now() + size.time;
  std::atomic<bool> ended = false;
  std::string failed;
  std::thread honest([&] {
    while (!ended) {
      const std::string answer = ask(target.port, target.honest, kHonestLimit);
      ++out.honest;
      if (is_ok(answer))
        ++out.honest_served;
      else if (failed.empty())
        failed = answer.empty() ? "no answer" : answer.substr(0, 300);
      ::poll(nullptr, 0, 50);
    }
  });
  while (Clock::now() < end) {
    const auto begin = Clock::now();
    const std::string answer = ask(target.port, health, kHealthLimit);
    const std::chrono::duration<double> time = Clock::now() - begin;
    out.health.push_back(is_ok(answer) ? time.count() : static_cast<double>(kHealthLimit.count()));
    if (!is_ok(answer)) {
      ++out.health_failed;
      if (out.first_failure.empty()) out.first_failure = answer.empty() ? "no answer" : answer.substr(0, 300);
    }
    out.most_bytes = std::max(out.most_bytes, resident_bytes(target.process));
    ::poll(nullptr, 0, 10);
  }
  ended = true;
  honest.join();
  ::kill(attackers, SIGKILL);
  ::waitpid(attackers, nullptr, 0);
  if (out.first_failure.empty()) out.first_failure = failed;
  std::sort(out.health.begin(), out.health.end());
  return out;
}

}  // namespace lockstep
