#include "jobs/kubernetes/controllers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

using ClusterJson = nlohmann::ordered_json;

constexpr int kNotReadyAfter = 40, kDefaultToleration = 300;  // seconds
constexpr int kSignalCodes = 128;

ClusterJson part(const ClusterJson& object, const char* path) {
  const ClusterJson::json_pointer pointer(path);
  return object.contains(pointer) ? object.at(pointer) : ClusterJson();
}

std::string word(const ClusterJson& object, const char* path) {
  const ClusterJson value = part(object, path);
  return value.is_string() ? value.get<std::string>() : "";
}

int whole(const ClusterJson& object, const char* path, int otherwise) {
  const ClusterJson value = part(object, path);
  return value.is_number_integer() ? value.get<int>() : otherwise;
}

bool has_ended(const ClusterJson& pod) {
  const std::string phase = word(pod, "/status/phase");
  return phase == "Succeeded" || phase == "Failed";
}

int index_of(const ClusterJson& pod) {
  for (const char* path : {"/metadata/labels/batch.kubernetes.io~1job-completion-index",
                           "/metadata/labels/training.kubeflow.org~1replica-index"})
    if (const std::string text = word(pod, path); !text.empty()) return std::stoi(text);
  return -1;
}

bool is_disrupted(const ClusterJson& pod) {
  for (const ClusterJson& each : part(pod, "/status/conditions"))
    if (each["type"] == "DisruptionTarget" && each["status"] == "True") return true;
  return false;
}

// The exit code of the first container; -1 if it has not ended.
int exit_code(const ClusterJson& pod) {
  return whole(pod, "/status/containerStatuses/0/state/terminated/exitCode", -1);
}

// "Ignore", "FailJob" or "Count": the action of the first rule that applies to a failed pod.
std::string action_of(const ClusterJson& job, const ClusterJson& pod) {
  for (const ClusterJson& rule : part(job, "/spec/podFailurePolicy/rules")) {
    bool applies = false;
    if (rule.contains("onExitCodes")) {
      const ClusterJson values = rule["onExitCodes"]["values"];
      const bool listed = std::ranges::find(values, ClusterJson(exit_code(pod))) != values.end();
      applies = exit_code(pod) > 0 && listed == (rule["onExitCodes"]["operator"] == "In");
    }
    for (const ClusterJson& each : part(rule, "/onPodConditions"))
      applies = applies || (each["type"] == "DisruptionTarget" && is_disrupted(pod));
    if (applies) return rule["action"];
  }
  return "Count";
}

// Why the Restricted profile forbids the pod; "" if it does not.
std::string restricted_violation(const ClusterJson& spec) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  for (const ClusterJson& each : part(spec, "/containers")) {
    const std::string name = word(each, "/name");
    if (part(each, "/securityContext/allowPrivilegeEscalation") != false)
      add(fmt::format("allowPrivilegeEscalation != false (container \"{}\" must set it)", name));
    if (part(each, "/securityContext/capabilities/drop") != ClusterJson::array({"ALL"}))
      add(fmt::format("unrestricted capabilities (container \"{}\" must drop ALL)", name));
  }
  if (part(spec, "/securityContext/runAsNonRoot") != true) add("runAsNonRoot != true");
  if (word(spec, "/securityContext/seccompProfile/type").empty()) add("seccompProfile must be set");
  return out;
}

int toleration_of(const ClusterJson& pod) {
  for (const ClusterJson& each : part(pod, "/spec/tolerations"))
    if (word(each, "/key") == "node.kubernetes.io/unreachable")
      return whole(each, "/tolerationSeconds", kDefaultToleration);
  return kDefaultToleration;
}

void disrupt(ClusterJson& pod, const char* reason) {
  pod["status"]["conditions"].push_back({{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", reason}});
}

}  // namespace

std::string Controllers::time() const {
  return fmt::format("2026-01-01T{:02}:{:02}:{:02}Z", now_ / 3600, now_ / 60 % 60, now_ % 60);
}

void Controllers::settle() {
  while (step()) {
  }
}

void Controllers::advance(int seconds) {
  for (int i = 0; i < seconds; ++i) {
    ++now_;
    settle();
  }
}

bool Controllers::step() {
  bool changed = drain_lost_nodes();
  for (const Json& each : server_.all("jobs")) changed = sync_job(each) || changed;
  for (const Json& each : server_.all("jaxjobs")) changed = sync_jax_job(each) || changed;
  return start_pods() || changed;
}

bool Controllers::store(const Json& before, Json now) {
  if (now == before) return false;
  server_.put(std::move(now));
  return true;
}

std::vector<Controllers::Json> Controllers::pods_of(const Json& job) const {
  std::vector<Json> out;
  for (const Json& pod : server_.all("pods"))
    if (part(pod, "/metadata/ownerReferences/0/uid") == job["metadata"]["uid"]) out.push_back(pod);
  return out;
}

std::map<int, std::string> Controllers::live_pods(const std::string& job) const {
  std::map<int, std::string> out;
  for (const Json& pod : server_.all("pods"))
    if (!has_ended(pod) && word(pod, "/metadata/ownerReferences/0/name") == job)
      out[index_of(pod)] = word(pod, "/metadata/name");
  return out;
}

// The scheduler and the kubelets: a pending pod starts on a node that answers.
bool Controllers::start_pods() {
  bool changed = false;
  for (const Json& each : server_.all("pods")) {
    if (word(each, "/status/phase") != "Pending" || each["metadata"].contains("deletionTimestamp")) continue;
    std::vector<std::string> ready;
    for (const std::string& node : nodes_)
      if (!lost_.contains(node)) ready.push_back(node);
    if (ready.empty()) continue;
    Json pod = each;
    pod["spec"]["nodeName"] = ready[static_cast<size_t>(index_of(pod)) % ready.size()];
    pod["status"] = {{"phase", "Running"},
                     {"containerStatuses", Json::array({{{"name", pod["spec"]["containers"][0]["name"]},
                                                         {"ready", true},
                                                         {"restartCount", 0},
                                                         {"state", {{"running", {{"startedAt", time()}}}}}}})}};
    changed = store(each, pod) || changed;
  }
  return changed;
}

// Taint-based eviction: pods of a node that does not answer are deleted when their toleration is over. They stay
// Terminating, because no kubelet confirms it.
bool Controllers::drain_lost_nodes() {
  bool changed = false;
  for (const Json& each : server_.all("pods")) {
    const auto lost = lost_.find(word(each, "/spec/nodeName"));
    if (lost == lost_.end() || has_ended(each) || each["metadata"].contains("deletionTimestamp")) continue;
    if (now_ < lost->second + kNotReadyAfter + toleration_of(each)) continue;
    Json pod = each;
    pod["metadata"]["deletionTimestamp"] = time();
    disrupt(pod, "DeletionByTaintManager");
    changed = store(each, pod) || changed;
  }
  return changed;
}

// Pod garbage collection: pods of a node that does not exist have failed.
void Controllers::remove_node(const std::string& node) {
  nodes_.erase(node);
  lost_.erase(node);
  for (Json pod : server_.all("pods")) {
    if (word(pod, "/spec/nodeName") != node || has_ended(pod)) continue;
    if (!is_disrupted(pod)) disrupt(pod, "DeletionByPodGC");
    pod["status"]["phase"] = "Failed";
    server_.put(pod);
  }
}

void Controllers::end(const std::string& name, int code) {
  Json pod = server_.get("pods", "default", name);
  Json& status = pod["status"]["containerStatuses"][0];
  const Json ended = {{"terminated",
                       {{"exitCode", code},
                        {"reason", code == 0 ? "Completed" : "Error"},
                        {"startedAt", status["state"]["running"]["startedAt"]},
                        {"finishedAt", time()}}}};
  if (code != 0 && word(pod, "/spec/restartPolicy") == "OnFailure") {  // in the same pod
    status["lastState"] = ended;
    status["restartCount"] = status["restartCount"].get<int>() + 1;
  } else {
    status["state"] = ended;
    status["ready"] = false;
    pod["status"]["phase"] = code == 0 ? "Succeeded" : "Failed";
  }
  server_.put(pod);
}

void Controllers::evict(const std::string& name) {
  Json pod = server_.get("pods", "default", name);
  disrupt(pod, "TerminationByKubelet");
  pod["status"]["phase"] = "Failed";
  pod["status"]["reason"] = "Evicted";
  pod["status"]["containerStatuses"] = Json::array();
  server_.put(pod);
}

std::string Controllers::refusal(const Json& spec) const {
  if (const std::string text = restricted_ ? restricted_violation(spec) : ""; !text.empty())
    return "violates PodSecurity \"restricted:latest\": " + text;
  if (quota_.contains("limits.cpu"))
    for (const Json& each : part(spec, "/containers"))
      if (part(each, "/resources/limits/cpu").is_null())
        return fmt::format("failed quota: compute: must specify limits.cpu for: {}", word(each, "/name"));
  if (!quota_.contains("pods")) return "";
  const auto all = server_.all("pods");
  const auto used = std::ranges::count_if(all, [](const Json& pod) { return !has_ended(pod); });
  const int limit = quota_["pods"];
  if (used < limit) return "";
  return fmt::format("exceeded quota: compute, requested: pods=1, used: pods={0}, limited: pods={0}", limit);
}

bool Controllers::create_pod(const Json& job, int index, const std::string& name, const Json& pod_template,
                             const Json& labels) {
  const std::string job_name = word(job, "/metadata/name"), space = word(job, "/metadata/namespace");
  Json spec = pod_template.at("spec");
  const Json owner = {{"kind", job["kind"]}, {"name", job_name}, {"uid", job["metadata"]["uid"]}};
  if (const std::string why = refusal(spec); !why.empty()) {
    const std::string event = fmt::format("{}-refused-{}", job_name, index);
    const std::string shown = job["kind"] == "Job" ? name.substr(0, name.rfind('-') + 1) : name;  // its generateName
    const Json old = server_.get("events", space, event);
    const Json now = {{"apiVersion", "v1"},
                      {"kind", "Event"},
                      {"metadata", {{"name", event}, {"namespace", space}}},
                      {"type", "Warning"},
                      {"reason", job["kind"] == "Job" ? "FailedCreate" : "FailedCreatePod"},
                      {"message", fmt::format("Error creating: pods \"{}\" is forbidden: {}", shown, why)},
                      {"lastTimestamp", time()},
                      {"involvedObject", owner}};
    if (part(old, "/message") == now["message"]) return false;
    server_.put(now);
    return true;
  }
  server_.put({{"apiVersion", "v1"},
               {"kind", "Pod"},
               {"metadata",
                {{"name", name},
                 {"namespace", space},
                 {"creationTimestamp", time()},
                 {"labels", labels},
                 {"ownerReferences", Json::array({owner})}}},
               {"spec", spec},
               {"status", {{"phase", "Pending"}}}});
  return true;
}

bool Controllers::finish(Json& job, const char* type, const std::string& reason, const std::string& message) {
  for (const Json& pod : pods_of(job))
    if (!has_ended(pod)) server_.remove("pods", "default", word(pod, "/metadata/name"));
  job["status"]["active"] = 0;
  job["status"]["conditions"].push_back(
      {{"type", type}, {"status", "True"}, {"reason", reason}, {"message", message}, {"lastTransitionTime", time()}});
  return true;
}

// Adds new failures to the status of an Indexed Job. Returns the reason of a FailJob action; "" if there is none.
std::string Controllers::count_failures(Json& job) {
  std::string failure;
  int failed = whole(job, "/status/failed", 0);
  for (const Json& pod : pods_of(job)) {
    if (word(pod, "/status/phase") != "Failed" || !counted_.insert(word(pod, "/metadata/uid")).second) continue;
    const std::string action = action_of(job, pod);
    if (action == "FailJob")
      failure = fmt::format("Container {} for pod default/{} failed with exit code {} matching FailJob rule",
                            word(pod, "/spec/containers/0/name"), word(pod, "/metadata/name"), exit_code(pod));
    if (action != "Ignore") ++failed;
    if (pod["metadata"].contains("deletionTimestamp")) server_.remove("pods", "default", word(pod, "/metadata/name"));
  }
  if (failed > 0) job["status"]["failed"] = failed;
  return failure;
}

// The Job controller, for Indexed Jobs.
bool Controllers::sync_job(Json job) {
  const Json before = job;
  for (const Json& each : part(job, "/status/conditions"))
    if (each["type"] == "Failed" || each["type"] == "Complete") return false;
  const std::string failure = count_failures(job);
  if (!failure.empty()) return finish(job, "Failed", "PodFailurePolicy", failure) && store(before, job);
  if (whole(job, "/status/failed", 0) > whole(job, "/spec/backoffLimit", 6))
    return finish(job, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit") &&
           store(before, job);
  std::set<int> done, alive;
  for (const Json& pod : pods_of(job)) {
    if (word(pod, "/status/phase") == "Succeeded") done.insert(index_of(pod));
    // With a podFailurePolicy a pod is replaced only when it has failed, else already when it is being deleted.
    const bool leaving = pod["metadata"].contains("deletionTimestamp") && !job["spec"].contains("podFailurePolicy");
    if (!has_ended(pod) && !leaving) alive.insert(index_of(pod));
  }
  const int size = whole(job, "/spec/completions", 1);
  job["status"]["startTime"] = word(job, "/status/startTime").empty() ? time() : word(job, "/status/startTime");
  job["status"]["succeeded"] = done.size();
  job["status"]["active"] = alive.size();
  if (std::cmp_equal(done.size(), size))
    return finish(job, "Complete", "CompletionsReached", "Reached expected number of succeeded pods") &&
           store(before, job);
  bool changed = store(before, job);
  const std::string name = word(job, "/metadata/name");
  for (int i = 0; i < size; ++i) {
    if (done.contains(i) || alive.contains(i) || part(job, "/spec/suspend") == true) continue;
    changed = create_pod(job, i, fmt::format("{}-{}-p{:04}", name, i, names_), job["spec"]["template"],
                         {{"job-name", name}, {"batch.kubernetes.io/job-completion-index", fmt::format("{}", i)}}) ||
              changed;
    ++names_;
  }
  return changed;
}

// Kubeflow's operator. ExitCode replaces pods that ended with 128 and above; OnFailure lets the kubelet restart
// containers until their sum reaches the limit.
bool Controllers::sync_jax_job(Json job) {
  const Json before = job;
  for (const Json& each : part(job, "/status/conditions"))
    if (each["type"] == "Failed" || each["type"] == "Succeeded") return false;
  const Json worker = job["spec"]["jaxReplicaSpecs"]["Worker"];
  const std::string name = word(job, "/metadata/name"), policy = worker.value("restartPolicy", "Never");
  std::set<int> present;
  int restarts = 0, failed = 0, succeeded = 0;
  for (const Json& pod : pods_of(job)) {
    const std::string phase = word(pod, "/status/phase");
    restarts += whole(pod, "/status/containerStatuses/0/restartCount", 0);
    if (phase == "Failed" && policy == "ExitCode" && (is_disrupted(pod) || exit_code(pod) >= kSignalCodes)) {
      server_.remove("pods", "default", word(pod, "/metadata/name"));
      continue;
    }
    present.insert(index_of(pod));
    failed += phase == "Failed";
    succeeded += phase == "Succeeded";
  }
  const int size = worker.value("replicas", 1);
  job["status"]["replicaStatuses"]["Worker"] = {
      {"active", static_cast<int>(present.size()) - failed - succeeded}, {"succeeded", succeeded}, {"failed", failed}};
  if (policy == "OnFailure" && job["spec"].contains("/runPolicy/backoffLimit"_json_pointer) &&
      restarts >= whole(job, "/spec/runPolicy/backoffLimit", 0) && restarts > 0)
    return finish(job, "Failed", "JAXJobFailed",
                  fmt::format("JAXJob {} has failed because it has reached the specified backoff limit", name)) &&
           store(before, job);
  if (failed > 0)
    return finish(job, "Failed", "JAXJobFailed",
                  fmt::format("JAXJob {} is failed because {} Worker replica(s) failed.", name, failed)) &&
           store(before, job);
  if (succeeded == size)
    return finish(job, "Succeeded", "JAXJobSucceeded",
                  fmt::format("JAXJob default/{} successfully completed.", name)) &&
           store(before, job);
  bool changed = store(before, job);
  for (int i = 0; i < size; ++i) {
    if (present.contains(i)) continue;
    Json pod = worker["template"];
    pod["spec"]["restartPolicy"] = policy == "ExitCode" ? "Never" : policy;
    changed = create_pod(job, i, fmt::format("{}-worker-{}", name, i), pod,
                         {{"training.kubeflow.org/job-name", name},
                          {"training.kubeflow.org/replica-index", fmt::format("{}", i)}}) ||
              changed;
  }
  return changed;
}

}  // namespace lockstep
