// A server beside clients that occupy it, and honest clients that measure what they get.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct AttackTarget {
  int port = 0;
  pid_t process = 0;
  std::string health;  // path of the health check
  std::string honest;  // a complete request, with "Connection: close"
  std::string upload;  // METHOD and path that take a body, such as "POST /generate"
  std::string work;    // a complete request that keeps the server busy, with "Connection: close"
};

struct AttackSize {
  int silent = 1000, slow = 200, wrong_token = 100, busy = 4;
  std::chrono::seconds time{3};
};

struct AttackReport {
  std::vector<double> health;  // seconds of each answer, sorted; an unanswered one counts as kHealthLimit
  int64_t health_failed = 0;
  int64_t honest = 0, honest_served = 0;
  int64_t quiet_bytes = 0, most_bytes = 0;  // memory of the server
  std::string first_failure;

  double health_at(double share) const;  // such as 0.999
  std::string text() const;
};

inline constexpr std::chrono::seconds kHealthLimit{10};

// Runs the attackers in a process of their own, which has one core, and honest clients in this one.
AttackReport attack(const AttackTarget& target, const AttackSize& size);

}  // namespace lockstep
