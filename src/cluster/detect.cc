#include "cluster/detect.h"

#include <algorithm>
#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "base/names.h"
#include "base/os/environment.h"
#include "base/os/host_name.h"
#include "cluster/detectors.h"
#include "cluster/variables.h"

namespace lockstep::detail {
namespace {

std::optional<ExplicitSettings::Number> given_number(const std::optional<int>& option, const std::string& option_name,
                                                     const Environment& environment, const std::string& variable,
                                                     int low) {
  if (option) {
    if (*option < low) throw_error("initialize: {} is {}; it must be at least {}", option_name, *option, low);
    return ExplicitSettings::Number{*option, option_name, std::to_string(*option)};
  }
  if (const std::optional<int> value = optional_number(environment, variable, low))
    return ExplicitSettings::Number{*value, variable, *find_variable(environment, variable)};
  return std::nullopt;
}

// Used when cluster_detection_method is "none": only the options count.
const Environment kEmptyEnvironment;

// Maps JAX's names of methods to ours.
std::string canonical_method(const std::string& method) {
  return method == "k8s" ? "kubernetes" : method == "deactivate" ? "none" : method;
}

DetectorResult run_detector(const Detector& detector, const DetectorInput& input) {
  DetectorResult result;
  result.detector = std::string(detector.name);
  try {
    auto answer = detector.detect(input);
    if (NotDetected* no = std::get_if<NotDetected>(&answer)) {
      result.reason = std::move(no->reason);
      result.partially_set = no->partially_set;
    } else {
      result.found = std::get<ClusterInfo>(std::move(answer));
      result.found->method = result.detector;
      result.reason = to_string(*result.found);
    }
  } catch (const Error& error) {
    result.invalid = true;
    result.reason = error.what();
  }
  return result;
}

void check_agrees(const std::optional<ExplicitSettings::Number>& given, int found, std::string_view what,
                  const ClusterInfo& info) {
  if (given && given->value != found)
    throw_error(
        "initialize: {} is {}, but {} reports that {} is {}; remove it, or set all three of coordinator, number of "
        "processes and process id",
        given->name, given->text, info.method, what, found);
}

// Applies the explicit settings to a detector's result.
ClusterInfo complete(ClusterInfo info, const ExplicitSettings& given, bool by_order) {
  if (by_order && info.method == "none" && given.any() && !(given.count && given.count->value == 1))
    throw_error(
        "initialize: {} missing, and no launcher was detected; set all three, or run `lockstep doctor` to see why",
        describe_missing(given));
  check_agrees(given.count, info.process_count, "the number of processes", info);
  check_agrees(given.id, info.process_id, "this process's id", info);
  if (given.coordinator) info.coordinator = *given.coordinator;
  if (info.process_count == 1) info.coordinator.clear();
  if (!info.coordinator.empty() && !given.bind_address.empty())
    info.bind_address = to_string(parse_address(given.bind_address, "coordinator_bind_address",
                                                parse_address(info.coordinator, "coordinator_address").port));
  info.local_device_ids = given.local_device_ids;
  return info;
}

// The first detected launcher; if `method` is set, only that detector counts.
ClusterInfo choose(const std::vector<DetectorResult>& results, const std::string& method,
                   const ExplicitSettings& given) {
  for (const DetectorResult& result : results) {
    if (!method.empty() && result.detector != method) continue;
    if (result.invalid) throw Error(result.reason);
    if (result.found) return complete(*result.found, given, method.empty());
    if (!method.empty())
      throw_error("initialize: cluster_detection_method is {} (leave it empty to try all), but it was not detected: {}",
                  method, result.reason);
  }
  LOCKSTEP_CHECK(false, "the last detector always succeeds");
  return {};
}

}  // namespace

ExplicitSettings read_explicit_settings(const distributed::Options& options, const Environment& environment) {
  ExplicitSettings given;
  if (options.coordinator_address) {
    given.coordinator = to_string(parse_address(*options.coordinator_address, "coordinator_address"));
  } else if (find_variable(environment, "LOCKSTEP_COORDINATOR")) {
    given.coordinator =
        to_string(address_variable(environment, "LOCKSTEP_COORDINATOR", "LOCKSTEP_COORDINATOR_PORT", 0));
  }
  given.count = given_number(options.num_processes, "num_processes", environment, "LOCKSTEP_NUM_PROCESSES", 1);
  given.id = given_number(options.process_id, "process_id", environment, "LOCKSTEP_PROCESS_ID", 0);
  if (given.count && given.id) check_id(given.id->name, given.id->value, given.count->name, given.count->value);

  given.bind_address = options.coordinator_bind_address;
  if (const std::string* text = find_variable(environment, "JAX_COORDINATOR_BIND_ADDRESS");
      text && given.bind_address.empty())
    given.bind_address = *text;
  given.local_device_ids = options.local_device_ids;
  if (!given.local_device_ids.empty())
    parse_ids(fmt::format("{}", fmt::join(given.local_device_ids, ",")), "local_device_ids");
  for (const char* name : {"LOCKSTEP_LOCAL_DEVICE_IDS", "JAX_LOCAL_DEVICE_IDS"})
    if (const std::string* text = find_variable(environment, name); text && given.local_device_ids.empty())
      given.local_device_ids = parse_ids(*text, name);
  return given;
}

std::string describe_missing(const ExplicitSettings& given) {
  std::vector<std::string> missing;
  if (!given.coordinator) missing.push_back("LOCKSTEP_COORDINATOR (coordinator_address)");
  if (!given.count) missing.push_back("LOCKSTEP_NUM_PROCESSES (num_processes)");
  if (!given.id) missing.push_back("LOCKSTEP_PROCESS_ID (process_id)");
  return fmt::format("{} {}", join_words(missing), missing.size() == 1 ? "is" : "are");
}

std::string to_string(const ClusterInfo& info) {
  std::string out = fmt::format("process {} of {}", info.process_id, info.process_count);
  if (info.local_id) out += fmt::format(", local id {}", *info.local_id);
  if (info.local_id && info.local_count) out += fmt::format(" of {}", *info.local_count);
  if (!info.coordinator.empty()) out += fmt::format(", coordinator {}", info.coordinator);
  if (!info.bind_address.empty()) out += fmt::format(" (bound to {})", info.bind_address);
  if (!info.local_device_ids.empty()) out += fmt::format(", devices {}", fmt::join(info.local_device_ids, ","));
  if (info.mpi) out += ", MPI";
  return out;
}

std::vector<std::string> detector_names() {
  std::vector<std::string> names;
  for (const Detector& detector : kAllDetectors) names.emplace_back(detector.name);
  return names;
}

Detection run_detectors(const distributed::Options& options, const LaunchEnvironment& launch) {
  const std::string method = canonical_method(options.cluster_detection_method);
  const std::vector<std::string> names = detector_names();
  if (!method.empty() && std::find(names.begin(), names.end(), method) == names.end())
    throw_unknown_name("initialize: cluster_detection_method", method, names);
  Detection detection;
  ExplicitSettings given;
  try {
    given = read_explicit_settings(options, method == "none" ? kEmptyEnvironment : launch.environment);
  } catch (const Error& error) {
    detection.problem = error.what();
  }
  for (const Detector& detector : kAllDetectors)
    detection.results.push_back(run_detector(detector, {.given = given, .launch = launch}));
  if (!detection.problem.empty()) {
    detection.results.front() = {.detector = names.front(), .found = {}, .reason = detection.problem, .invalid = true};
    return detection;
  }
  try {
    detection.chosen = choose(detection.results, method, given);
  } catch (const Error& error) {
    detection.problem = error.what();
  }
  return detection;
}

ClusterInfo detect(const distributed::Options& options, const LaunchEnvironment& launch) {
  Detection detection = run_detectors(options, launch);
  if (!detection.chosen) throw Error(detection.problem);
  return std::move(*detection.chosen);
}

std::string full_name_in_hosts(std::string_view hosts, std::string_view host_name) {
  const std::string beginning = std::string(host_name) + ".";
  std::istringstream lines{std::string(hosts)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream rest(line.substr(0, line.find('#')));
    std::string number;
    rest >> number;
    for (std::string name; rest >> name;)
      if (name.starts_with(beginning)) return name;
  }
  return "";
}

LaunchEnvironment read_launch_environment(const distributed::Options& options) {
  LaunchEnvironment launch = read_launch_environment();
  if (const std::optional<int> port = options.coordinator_port) {
    if (*port < 1 || *port > kLastPort)
      throw_error("initialize: coordinator_port is {}; ports are numbers from 1 to {}", *port, kLastPort);
    launch.environment["LOCKSTEP_COORDINATOR_PORT"] = std::to_string(*port);
  }
  if (!options.token_file.empty()) {
    launch.environment.erase("LOCKSTEP_TOKEN");
    launch.environment["LOCKSTEP_TOKEN_FILE"] = options.token_file;
  }
  if (options.insecure) launch.environment["LOCKSTEP_INSECURE"] = "1";
  return launch;
}

LaunchEnvironment read_launch_environment() {
  LaunchEnvironment launch;
  launch.environment = own_environment();
  launch.host_name = own_host_name();
  try {
    const std::vector<uint8_t> bytes = FileSystem::real().read_file("/etc/hosts", 16 << 20);
    launch.full_host_name = full_name_in_hosts(std::string(bytes.begin(), bytes.end()), launch.host_name);
  } catch (const std::runtime_error&) {  // the full name stays unknown
  }
  return launch;
}

}  // namespace lockstep::detail
