#include "jobs/kubernetes/pod_status.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

const Json& part_of(const Json& object, std::string_view path) {
  static const Json nothing;
  const Json::json_pointer pointer{std::string(path)};
  return object.contains(pointer) ? object.at(pointer) : nothing;
}

std::string word_in(const Json& object, std::string_view path) {
  const Json& value = part_of(object, path);
  return value.is_string() ? value.get<std::string>() : "";
}

int64_t count_in(const Json& object, std::string_view path) {
  const Json& value = part_of(object, path);
  return value.is_number_integer() ? value.get<int64_t>() : 0;
}

// Why a container ended: "OOMKilled", "Signal:9" or "ExitCode:1".
std::string ending_of(const Json& terminated) {
  if (const std::string reason = word_in(terminated, "/reason"); !reason.empty()) return reason;
  if (const int64_t signal = count_in(terminated, "/signal"); signal != 0) return fmt::format("Signal:{}", signal);
  return fmt::format("ExitCode:{}", count_in(terminated, "/exitCode"));
}

// The status of the first init container that has not completed; nullopt if all have.
std::optional<std::string> init_status(const Json& pod) {
  size_t number = 0;
  for (const Json& each : part_of(pod, "/status/initContainerStatuses")) {
    const Json& ended = part_of(each, "/state/terminated");
    const size_t index = number++;
    if (ended.is_object() && count_in(ended, "/exitCode") == 0) continue;
    // A sidecar keeps running beside the other containers.
    const bool sidecar = word_in(pod, fmt::format("/spec/initContainers/{}/restartPolicy", index)) == "Always";
    if (sidecar && part_of(each, "/started") == true) continue;
    if (ended.is_object()) return "Init:" + ending_of(ended);
    const std::string waiting = word_in(each, "/state/waiting/reason");
    if (!waiting.empty() && waiting != "PodInitializing") return "Init:" + waiting;
    return fmt::format("Init:{}/{}", index, part_of(pod, "/spec/initContainers").size());
  }
  return std::nullopt;
}

// Counts the ready containers. The first container that is waiting or has ended sets the status.
void read_containers(const Json& pod, PodStatusText& out) {
  bool any_running = false;
  const Json& all = part_of(pod, "/status/containerStatuses");
  for (size_t i = all.is_array() ? all.size() : 0; i-- > 0;) {
    const Json &ended = part_of(all[i], "/state/terminated"), &ready = part_of(all[i], "/ready");
    const std::string waiting = word_in(all[i], "/state/waiting/reason");
    if (!waiting.empty()) {
      out.status = waiting;
    } else if (ended.is_object()) {
      out.status = ending_of(ended);
    } else if (ready == true && part_of(all[i], "/state/running").is_object()) {
      any_running = true;
      ++out.ready;
    }
  }
  if (out.status != "Completed" || !any_running) return;
  out.status = "NotReady";
  for (const Json& each : part_of(pod, "/status/conditions"))
    if (word_in(each, "/type") == "Ready" && word_in(each, "/status") == "True") out.status = "Running";
}

}  // namespace

PodStatusText kubectl_pod_status(const Json& pod) {
  PodStatusText out;
  const std::string phase = word_in(pod, "/status/phase"), reason = word_in(pod, "/status/reason");
  out.containers = static_cast<int>(part_of(pod, "/spec/containers").size());
  out.status = !reason.empty() ? reason : !phase.empty() ? phase : "Unknown";
  for (const Json& each : part_of(pod, "/status/conditions"))
    if (word_in(each, "/type") == "PodScheduled" && word_in(each, "/reason") == "SchedulingGated")
      out.status = "SchedulingGated";
  if (const auto init = init_status(pod))
    out.status = *init;
  else
    read_containers(pod, out);
  const bool ended = phase == "Succeeded" || phase == "Failed";
  if (!word_in(pod, "/metadata/deletionTimestamp").empty() && !ended)
    out.status = reason == "NodeLost" ? "Unknown" : "Terminating";
  return out;
}

}  // namespace lockstep
