// The detectors: each tells from the environment whether its launcher has started this process, and if so all there is
// to know, or why not. Pure functions, safe from any thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <variant>

#include "cluster/detect.h"

namespace lockstep::detail {

// What the user has said: options, and where they say nothing, LOCKSTEP_ variables. Each number is known by the name
// under which messages mention it.
struct Given {
  struct Number {
    int value = 0;
    std::string name, text;
  };
  std::optional<std::string> coordinator;
  std::optional<Number> count, id;
  std::string bind_address;
  std::vector<int> local_device_ids;

  bool any() const { return coordinator || count || id; }
};

// Throws Error for values that make no sense.
Given read_given(const distributed::Options&, const Environment&);

// "LOCKSTEP_COORDINATOR (or the option coordinator_address)" and the like, for what is not given.
std::string missing_of(const Given&);

struct Question {
  const Given& given;
  const Surroundings& here;
};

struct No {
  std::string reason;
  bool half_set = false;
};

struct Detector {
  std::string_view name;
  // Throws Error for values that make no sense.
  std::variant<ClusterInfo, No> (*ask)(const Question&);
};

// In the order in which they are asked; the last one always has an answer.
inline constexpr size_t kDetectors = 10;
extern const std::array<Detector, kDetectors> kAllDetectors;

}  // namespace lockstep::detail
