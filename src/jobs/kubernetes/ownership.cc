#include "jobs/kubernetes/ownership.h"

#include <string_view>

#include "jobs/kubernetes/kubectl.h"
#include "jobs/kubernetes/required_objects.h"

namespace lockstep {
namespace {

// The kinds that render writes for a job. Others, such as claims of volumes, stay when the job goes.
bool is_rendered_kind(std::string_view kind) {
  return kind == "Secret" || kind == "Service" || kind == "NetworkPolicy";
}

}  // namespace

void adopt_rendered_objects(const ObjectName& job, const std::vector<OtherObject>& objects) {
  nlohmann::ordered_json owner;
  for (const OtherObject& each : objects) {
    if (each.namespace_name != job.namespace_name || each.kind == job.kind) continue;
    if (!is_rendered_kind(each.kind) || !is_rendered_for(each.value, job.name)) continue;
    try {
      if (owner.is_null())
        owner = owner_reference(kubectl::parse_output(
            kubectl::run_or_throw({"get", job.kind, job.name, "-n", job.namespace_name, "-o", "json"}).out));
      const nlohmann::ordered_json patch = {{"metadata", {{"ownerReferences", {owner}}}}};
      kubectl::run_or_throw(
          {"patch", each.kind, each.name, "-n", job.namespace_name, "--type", "merge", "-p", patch.dump()});
    } catch (const Forbidden& error) {
      kubectl::note_once(error.what());
    }
  }
}

}  // namespace lockstep
