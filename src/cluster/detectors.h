// The detectors: each decides from the environment whether its launcher started this process. It returns the process's
// place in the job, or the reason why the launcher was not detected. Pure functions, thread-safe.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <variant>

#include "cluster/detect.h"

namespace lockstep::detail {

// What the user has set: options, and, for unset options, LOCKSTEP_ variables. Each number keeps the name of the option
// or variable, for messages.
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

// Throws Error for invalid values.
ExplicitSettings read_explicit_settings(const distributed::Options&, const Environment&);

// Lists the settings that are not set: "LOCKSTEP_COORDINATOR (coordinator_address) is".
std::string describe_missing(const ExplicitSettings&);

struct DetectorInput {
  const ExplicitSettings& given;
  const LaunchEnvironment& launch;
};

struct NotDetected {
  std::string reason;
  bool partially_set = false;
};

struct Detector {
  std::string_view name;
  // Throws Error for invalid values.
  std::variant<ClusterInfo, NotDetected> (*detect)(const DetectorInput&);
};

// In order of precedence; the last one ("none": a single process) always succeeds.
inline constexpr size_t kDetectors = 10;
extern const std::array<Detector, kDetectors> kAllDetectors;

}  // namespace lockstep::detail
