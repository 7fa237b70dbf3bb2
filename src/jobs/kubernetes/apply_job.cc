#include "jobs/kubernetes/apply_job.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/check.h"
#include "cluster/token.h"
#include "jobs/kubernetes/kubectl.h"
#include "jobs/kubernetes/kubectl_text.h"
#include "jobs/kubernetes/objects.h"
#include "jobs/kubernetes/ownership.h"
#include "jobs/kubernetes/required_objects.h"
#include "jobs/runner.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Note = std::function<void(std::string_view)>;

std::string typed_name(const Job& job) { return fmt::format("{}/{}", type_of(job.kind), job.name); }

[[noreturn]] void throw_apply_failure(const Job& job, const std::string& verb, const ProgramResult& result) {
  const std::vector<std::string> fields = immutable_fields(result.err);
  if (fields.empty()) kubectl::throw_failure(verb, result);
  throw_error(
      "apply: {} \"{}\" exists and {} cannot be changed; delete it first (lockstep delete {} -n {} --on kubernetes), "
      "or use another name",
      name_of(job.kind), job.name, fmt::join(fields, ", "), typed_name(job), job.namespace_name);
}

// The object if it exists. Waits for the deletion of an object of an earlier job with the same name.
Json find_required(const Json& required, const Job& job, const Json& owner) {
  const std::string kind = required["kind"], name = required["metadata"]["name"];
  for (const auto deadline = std::chrono::steady_clock::now() + kubectl::kAnswerTimeout;;
       std::this_thread::sleep_for(std::chrono::milliseconds(200))) {
    Json present = kubectl::find_object(kind, job.namespace_name, name);
    if (present.is_null() || !is_owned_by_earlier_job(present, owner)) return present;
    if (std::chrono::steady_clock::now() > deadline)
      throw IoError(
          fmt::format("the {} {} of an earlier job with this name still exists; delete it: kubectl delete {} {} -n {}",
                      kind, name, kind, name, job.namespace_name));
  }
}

// The required objects of a job: creates those that are missing, and removes them again if the job cannot be created.
class RequiredObjects {
 public:
  explicit RequiredObjects(const Job& job) : job_(job) {}

  // `object` is the job, on the API server or not created yet.
  void create_missing(const Json& object, const std::vector<Json>& required) {
    for (const Json& each : required) {
      if (!find_required(each, job_, object).is_null()) continue;
      const std::string kind = each["kind"], name = each["metadata"]["name"];
      const ProgramResult result = kubectl::run({"create", "-f", "-", "-n", job_.namespace_name}, each.dump());
      if (result.code != 0 && kubectl::stderr_contains(result, "(AlreadyExists)")) continue;
      if (result.code != 0) kubectl::throw_failure("create " + kind, result);
      created_.push_back({.value = each, .kind = kind, .name = name, .namespace_name = job_.namespace_name});
    }
  }

  // Makes the job, which exists now, their owner.
  void adopt(const std::string& token_secret, const Note& note) const {
    adopt_rendered_objects({std::string(name_of(job_.kind)), job_.name, job_.namespace_name}, created_);
    for (const OtherObject& each : created_) {
      if (each.kind == "Secret" && each.name == token_secret)
        note(fmt::format(
            "the job has no token: added LOCKSTEP_TOKEN from the new Secret {}, which is deleted with the job",
            each.name));
      else
        note(fmt::format("created the missing {} {}; it is deleted with the job", each.kind, each.name));
    }
  }

  // Removes what create_missing() created. Returns a sentence about objects that could not be removed; "" if none.
  std::string remove() {
    std::string left;
    for (const OtherObject& each : created_) {
      const ProgramResult result = kubectl::run(
          {"delete", each.kind, each.name, "-n", job_.namespace_name, "--ignore-not-found", "--wait=false"});
      if (result.code != 0)
        left += fmt::format("; the new {} {} could not be deleted: {}", each.kind, each.name,
                            kubectl_error_message(result.err));
    }
    created_.clear();
    return left;
  }

 private:
  const Job& job_;
  std::vector<OtherObject> created_;
};

std::string create_job(const Job& job, const Note& note) {
  Json object = job.manifest;
  const std::string secret = add_token_reference(object);
  RequiredObjects required(job);
  std::string why;
  try {
    required.create_missing(object, required_objects(object, make_token()));
  } catch (const RunnerUnreachable&) {
    throw;
  } catch (const IoError& error) {
    throw_error("apply: {}; {} cannot run without it and was not created{}", error.what(), typed_name(job),
                required.remove());
  }
  const ProgramResult result =
      kubectl::run({"create", "--save-config", "-f", "-", "-n", job.namespace_name}, object.dump());
  if (result.code != 0) {
    if (const std::string left = required.remove(); !left.empty()) kubectl::note_once(left.substr(2));
    throw_apply_failure(job, "create", result);
  }
  if (!secret.empty()) {  // the file of a later `kubectl apply` lacks the token: it must not be what was applied last
    Json applied = job.manifest;
    if (Json& annotations = applied["metadata"]["annotations"]; annotations.is_null())
      annotations = Json::object();  // as `kubectl apply` writes it
    const ProgramResult set =
        kubectl::run({"apply", "set-last-applied", "-f", "-", "-n", job.namespace_name}, applied.dump());
    if (set.code != 0) note(fmt::format("kubectl apply set-last-applied: {}", kubectl_error_message(set.err)));
  }
  required.adopt(secret, note);
  return "created";
}

// The processes of a job read their number when they start. The operator and the Job controller would start or stop
// some of them, and the job would fail.
void refuse_changed_size(const Job& job, const Json& present) {
  const Job old = job_of_object(present);
  if (is_finished(old) || old.spec.suspend || job.spec.suspend) return;
  if (job.spec.replicas == old.spec.replicas) return;
  throw_error(
      "apply: {0} \"{1}\" is running, and its {2} cannot be changed ({3} -> {4}); suspend it first (lockstep suspend "
      "{5} "
      "-n {6} --on kubernetes), delete it (lockstep delete {5} -n {6} --on kubernetes), or use another name",
      name_of(job.kind), job.name, job.kind == JobKind::jax_job ? "replicas" : "completions", old.spec.replicas,
      job.spec.replicas, typed_name(job), job.namespace_name);
}

std::string update_cluster_job(const Job& job, const Json& present, const Note& note) {
  if (is_job_object(present)) refuse_changed_size(job, present);
  Json object = job.manifest;
  keep_token_reference(object, present);
  const ProgramResult result = kubectl::run({"apply", "-f", "-", "-n", job.namespace_name}, object.dump());
  if (result.code != 0) throw_apply_failure(job, "apply", result);
  std::string done = result.out.substr(0, result.out.find('\n'));
  done.erase(0, done.rfind(' ') + 1);
  const Json now = kubectl::find_object(resource_of(job.kind), job.namespace_name, job.name);
  if (!is_job_object(now)) return done;  // deleted in the meantime
  RequiredObjects required(job);
  try {
    // Processes that already run without an optional Secret could not join those that have its token.
    required.create_missing(now, required_objects(now, make_token(), OptionalSecrets::omit));
  } catch (const RunnerUnreachable&) {
    throw;
  } catch (const IoError& error) {
    throw_error("apply: {}; {} existed before and was kept, but this object is missing", error.what(), typed_name(job));
  }
  required.adopt("", note);
  return done;
}

}  // namespace

std::string apply_job(Job job, const Note& note) {
  job.manifest["metadata"]["name"] = job.name;  // also if it was made from generateName
  job.manifest["metadata"].erase("generateName");
  job.manifest["metadata"]["namespace"] = job.namespace_name;
  const Json present = kubectl::find_object(resource_of(job.kind), job.namespace_name, job.name);
  return present.is_null() ? create_job(job, note) : update_cluster_job(job, present, note);
}

}  // namespace lockstep
