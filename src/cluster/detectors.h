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
struct ExplicitSettings {
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
ExplicitSettings read_explicit_settings(const distributed::Options&, const Environment&);

// "LOCKSTEP_COORDINATOR (or the option coordinator_address)" and the like, for what is not given.
std::string describe_missing(const ExplicitSettings&);

struct DetectorInput {
  const ExplicitSettings& given;
  const LaunchEnvironment& here;
};

struct NotDetected {
  std::string reason;
  bool partially_set = false;
};

struct Detector {
  std::string_view name;
  // Throws Error for values that make no sense.
  std::variant<ClusterInfo, NotDetected> (*ask)(const DetectorInput&);
};

// In the order in which they are asked; the last one always has an answer.
inline constexpr size_t kDetectors = 10;
extern const std::array<Detector, kDetectors> kAllDetectors;

}  // namespace lockstep::detail
