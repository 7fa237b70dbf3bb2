// What the variables of manifests set: restarts, waiting for other pods, placement, volumes and the network.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/throws.h"
#include "jobs/kubernetes/manifests.h"
#include "jobs/kubernetes/required_objects.h"
#include "jobs/kubernetes/schema.h"
#include "jobs/kubernetes/variables.h"
#include "jobs/model/manifest.h"
#include "jobs/model/yaml_document.h"
#include "lockstep/error.h"
#include "support/program.h"
#include "support/text_file.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Json> objects_of(const std::string& kind, Json given) {
  if (!given.contains("token_secret")) given["token"] = "0123456789abcdef";
  std::vector<Json> out;
  for (const YamlDocument& each : parse_yaml_documents(render_manifest({.kind = kind, .variables = given}), kind))
    out.push_back(each.value);
  return out;
}

// The job is the last object of a manifest.
Json job_object(const std::string& kind, const Json& given = Json::object()) { return objects_of(kind, given).back(); }

Json template_of(const std::string& kind, const Json& given = Json::object()) {
  const Json spec = job_object(kind, given)["spec"];
  if (kind == "indexed-job") return spec["template"];
  if (kind == "jaxjob") return spec["jaxReplicaSpecs"]["Worker"]["template"];
  if (kind == "jobset") return spec["replicatedJobs"][0]["template"]["spec"]["template"];
  return spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
             ["template"];
}

Json pod_spec(const std::string& kind, const Json& given = Json::object()) { return template_of(kind, given)["spec"]; }

Json env_of(const std::string& kind, const Json& given = Json::object()) {
  const Json list = kind == "trainjob" ? job_object(kind, given)["spec"]["trainer"]["env"]
                                       : pod_spec(kind, given)["containers"][0]["env"];
  Json out = Json::object();
  for (const Json& each : list) out[each["name"].get<std::string>()] = each.value("value", Json());
  return out;
}

const std::vector<std::string> kOwnPods = {"indexed-job", "jaxjob", "jobset"};

// Kubernetes needs 40 s to notice a lost node, then the tolerated time. The other processes wait for longer than that.
TEST(LostNode, ItsPodsAreReplacedBeforeTheOthersGiveUp) {
  constexpr int kNotReady = 40, kStart = 300;
  for (const std::string& kind : manifest_kinds()) {
    std::map<std::string, int> tolerated;
    const Json spec = pod_spec(kind);
    for (const Json& each : spec["tolerations"]) {
      EXPECT_EQ(each["effect"], "NoExecute");
      EXPECT_EQ(each["operator"], "Exists");
      tolerated[each["key"]] = each["tolerationSeconds"];
    }
    EXPECT_EQ(tolerated, (std::map<std::string, int>{{"node.kubernetes.io/not-ready", 30},
                                                     {"node.kubernetes.io/unreachable", 30}}))
        << kind;
    const int wait = std::stoi(env_of(kind)["LOCKSTEP_INITIALIZATION_TIMEOUT"].get<std::string>());
    EXPECT_GT(wait, kNotReady + 30 + kStart) << kind;
    EXPECT_EQ(env_of(kind, {{"initialization_timeout", 900}})["LOCKSTEP_INITIALIZATION_TIMEOUT"], "900");
    const Json quick = pod_spec(kind, {{"node_loss_seconds", 5}});
    for (const Json& each : quick["tolerations"])
      EXPECT_EQ(each["tolerationSeconds"], 5);
  }
}

// The rule of Kubeflow's training operator: with OnFailure it sums the restarts of all containers that run, and the job
// fails when the sum reaches the limit, or is above 0 if the limit is 0.
bool operator_fails(const Json& job, int container_restarts) {
  const int limit = job["spec"]["runPolicy"]["backoffLimit"];
  return limit == 0 ? container_restarts > 0 : container_restarts >= limit;
}

TEST(Backoff, RestartsOfAJaxJobAreCountedAsItsOperatorDoes) {
  for (const int hosts : {1, 2, 5})
    for (const int backoff : {1, 3}) {
      const Json job = job_object("jaxjob", {{"hosts_count", hosts}, {"backoff", backoff}});
      EXPECT_EQ(job["spec"]["jaxReplicaSpecs"]["Worker"]["restartPolicy"], "OnFailure");
      EXPECT_FALSE(operator_fails(job, backoff * hosts));
      EXPECT_TRUE(operator_fails(job, (backoff + 1) * hosts));
    }
  const Json never = job_object("jaxjob", {{"hosts_count", 2}});
  EXPECT_EQ(never["spec"]["jaxReplicaSpecs"]["Worker"]["restartPolicy"], "Never");
  EXPECT_EQ(never["spec"]["runPolicy"]["backoffLimit"], 0);
  const Json codes = job_object("jaxjob", {{"backoff", 2}, {"restart_policy", "ExitCode"}});
  EXPECT_EQ(codes["spec"]["jaxReplicaSpecs"]["Worker"]["restartPolicy"], "ExitCode");
  EXPECT_EQ(codes["spec"]["runPolicy"]["backoffLimit"], 2);
}

TEST(Backoff, AJobSetRestartsAsAWhole) {
  const Json spec = job_object("jobset", {{"hosts_count", 4}, {"backoff", 2}})["spec"];
  EXPECT_EQ(spec["failurePolicy"]["maxRestarts"], 2);
  EXPECT_EQ(spec["replicatedJobs"][0]["template"]["spec"]["backoffLimit"], 0);
}

TEST(Placement, DefaultsLeaveItToTheCluster) {
  for (const std::string& kind : manifest_kinds()) {
    const Json pod = pod_spec(kind);
    for (const char* field : {"nodeSelector", "affinity", "topologySpreadConstraints", "priorityClassName",
                              "imagePullSecrets", "serviceAccountName", "runtimeClassName"})
      EXPECT_FALSE(pod.contains(field)) << kind << " " << field;
    EXPECT_FALSE(job_object(kind)["metadata"]["labels"].contains("kueue.x-k8s.io/queue-name"));
  }
  for (const std::string& kind : kOwnPods)
    EXPECT_EQ(template_of(kind)["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"], "false");
}

TEST(Placement, VariablesSetTheFieldsOfThePods) {
  const Json taint = {{"key", "dedicated"}, {"operator", "Exists"}}, affinity = {{"podAffinity", Json::object()}},
             spread = Json::array({{{"maxSkew", 1}, {"topologyKey", "rack"}, {"whenUnsatisfiable", "DoNotSchedule"}}});
  for (const std::string& kind : manifest_kinds()) {
    const Json pod = pod_spec(kind, {{"tolerations", {taint}},
                                     {"affinity", affinity},
                                     {"node_selector", {{"pool", "gpu"}}},
                                     {"image_pull_secrets", {"a", "my.registry"}},
                                     {"service_account", "trainer"}});
    EXPECT_EQ(pod["tolerations"].back(), taint);
    EXPECT_EQ(pod["tolerations"].size(), 3u);
    EXPECT_EQ(pod["affinity"], affinity);
    EXPECT_EQ(pod["nodeSelector"]["pool"], "gpu");
    EXPECT_EQ(pod["imagePullSecrets"], Json::array({{{"name", "a"}}, {{"name", "my.registry"}}}));
    EXPECT_EQ(pod["serviceAccountName"], "trainer");
  }
  for (const std::string& kind : kOwnPods) {
    const Json given = {
        {"topology_spread", spread}, {"priority_class", "high"}, {"runtime_class", "nvidia"}, {"safe_to_evict", true}};
    const Json pod = pod_spec(kind, given);
    EXPECT_EQ(pod["topologySpreadConstraints"], spread);
    EXPECT_EQ(pod["priorityClassName"], "high");
    EXPECT_EQ(pod["runtimeClassName"], "nvidia");
    EXPECT_EQ(template_of(kind, given)["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"],
              "true");
  }
}

TEST(Labels, AreOnTheJobAndItsPodsAndTheQueueOnlyOnTheJob) {
  const Json given = {{"labels", {{"team", "a"}}}, {"annotations", {{"note", "any text!"}}}, {"queue", "gpu"}};
  for (const std::string& kind : manifest_kinds()) {
    for (const Json& object : objects_of(kind, given)) {
      EXPECT_EQ(object["metadata"]["labels"]["team"], "a");
      EXPECT_EQ(object["metadata"]["annotations"]["note"], "any text!");
      EXPECT_EQ(object["metadata"]["labels"].contains("kueue.x-k8s.io/queue-name"), object == job_object(kind, given));
    }
    const Json pod = template_of(kind, given)["metadata"];
    EXPECT_EQ(pod["labels"]["team"], "a");
    EXPECT_EQ(pod["annotations"]["note"], "any text!");
    EXPECT_FALSE(pod["labels"].contains("kueue.x-k8s.io/queue-name"));
  }
}

TEST(Resources, DefaultsGrowWithTheGpus) {
  const auto resources = [](const Json& given) { return pod_spec("indexed-job", given)["containers"][0]["resources"]; };
  EXPECT_EQ(resources(Json::object()),
            Json({{"requests", {{"cpu", "1"}, {"memory", "2Gi"}, {"ephemeral-storage", "4Gi"}}},
                  {"limits", {{"memory", "2Gi"}, {"ephemeral-storage", "4Gi"}}}}));
  EXPECT_EQ(resources({{"gpus", 2}}),
            Json({{"requests", {{"cpu", "8"}, {"memory", "32Gi"}, {"ephemeral-storage", "4Gi"}}},
                  {"limits", {{"memory", "32Gi"}, {"ephemeral-storage", "4Gi"}, {"nvidia.com/gpu", 2}}}}));
  EXPECT_EQ(resources({{"cpu", 2}, {"cpu_limit", "4"}, {"memory", nullptr}, {"ephemeral_storage", nullptr}}),
            Json({{"requests", {{"cpu", "2"}}}, {"limits", {{"cpu", "4"}}}}));
}

TEST(Volumes, GpuPodsHaveSharedMemoryForNccl) {
  const auto volume = [](const Json& pod, const std::string& name) {
    for (const Json& each : pod["volumes"])
      if (each["name"] == name) return each;
    return Json();
  };
  for (const std::string& kind : manifest_kinds()) {
    EXPECT_TRUE(volume(pod_spec(kind), "shm").is_null());
    const Json pod = pod_spec(kind, {{"gpus", 1}});
    EXPECT_EQ(volume(pod, "shm")["emptyDir"], Json({{"medium", "Memory"}, {"sizeLimit", "1Gi"}}));
    EXPECT_EQ(volume(pod_spec(kind, {{"shm", "64Mi"}}), "shm")["emptyDir"]["sizeLimit"], "64Mi");
    EXPECT_EQ(volume(pod, "tmp")["emptyDir"], Json({{"sizeLimit", "4Gi"}}));
    EXPECT_EQ(pod["tolerations"].back()["key"], "nvidia.com/gpu");
  }
}

TEST(Volumes, ClaimsAreMountedAtTheirPaths) {
  for (const std::string& kind : manifest_kinds()) {
    const Json pod = pod_spec(kind, {{"volumes", {"data.v1:/data:ro", "runs:/runs"}}, {"checkpoint_claim", "c"}});
    std::map<std::string, std::string> claims;
    for (const Json& each : pod["volumes"])
      if (each.contains("persistentVolumeClaim")) claims[each["name"]] = each["persistentVolumeClaim"]["claimName"];
    std::map<std::string, std::string> mounted;
    for (const Json& each : pod["containers"][0]["volumeMounts"])
      if (claims.contains(each["name"]))
        mounted[each["mountPath"]] = claims[each["name"]] + (each.value("readOnly", false) ? " read-only" : "");
    EXPECT_EQ(mounted, (std::map<std::string, std::string>{
                           {"/checkpoints", "c"}, {"/data", "data.v1 read-only"}, {"/runs", "runs"}}))
        << kind;
  }
}

TEST(Token, IsAFileOfAnImmutableSecret) {
  for (const std::string& kind : manifest_kinds()) {
    const Json secret = objects_of(kind, Json::object())[0];
    EXPECT_EQ(secret["kind"], "Secret");
    EXPECT_EQ(secret["immutable"], true);
    const Json pod = pod_spec(kind), env = env_of(kind);
    EXPECT_FALSE(env.contains("LOCKSTEP_TOKEN"));
    EXPECT_EQ(env["LOCKSTEP_TOKEN_FILE"], "/var/run/secrets/lockstep/token");
    bool mounted = false, found = false;
    for (const Json& each : pod["containers"][0]["volumeMounts"])
      mounted = mounted || (each["name"] == "token" && each["mountPath"] == "/var/run/secrets/lockstep");
    for (const Json& each : pod["volumes"])
      found = found || (each["name"] == "token" && each["secret"]["secretName"] == secret["metadata"]["name"] &&
                        each["secret"]["defaultMode"] == 0440);
    EXPECT_TRUE(mounted && found) << kind;
  }
}

TEST(Network, APolicyAdmitsThePodsOfTheJobToItsPorts) {
  for (const std::string& kind : kOwnPods) {
    EXPECT_EQ(env_of(kind)["LOCKSTEP_DATA_PORTS"], "61000-64999");
    for (const Json& each : objects_of(kind, Json::object())) EXPECT_NE(each["kind"], "NetworkPolicy");
    const Json given = {{"network_policy", true}, {"data_ports", "7000-7099"}, {"port", 7500}, {"name", "mnist"}};
    EXPECT_EQ(env_of(kind, given)["LOCKSTEP_DATA_PORTS"], "7000-7099");
    Json policy;
    for (const Json& each : objects_of(kind, given))
      if (each["kind"] == "NetworkPolicy") policy = each["spec"];
    EXPECT_EQ(policy["ingress"][0]["ports"], Json::array({{{"port", 7500}}, {{"port", 7000}, {"endPort", 7099}}}));
    const Json selector = policy["podSelector"]["matchLabels"], labels = template_of(kind, given)["metadata"]["labels"];
    EXPECT_EQ(policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"], selector);
    for (const auto& [key, value] : selector.items()) EXPECT_EQ(labels[key], value);
    // NCCL chooses its ports from the range of the kernel.
    EXPECT_FALSE(pod_spec(kind, given)["securityContext"].contains("sysctls"));
    Json gpus = given;
    gpus["gpus"] = 1;
    EXPECT_EQ(pod_spec(kind, gpus)["securityContext"]["sysctls"][0]["value"], "7000 7099");
  }
}

// The kubelet runs the first probe after the initial delay, and the next ones after a period each.
TEST(Probe, APodIsReadySoonAfterItsStart) {
  for (const std::string& kind : kOwnPods) {
    const Json probe = pod_spec(kind)["containers"][0]["readinessProbe"];
    EXPECT_GT(probe["initialDelaySeconds"], 0);
    EXPECT_LE(probe["initialDelaySeconds"].get<int>() + probe["periodSeconds"].get<int>(), 10);
  }
}

// The examples have what rendered manifests have, and run programs that the image has.
TEST(ExampleManifests, HaveThePodsOfRenderedOnes) {
  const Json rendered = pod_spec("jaxjob");
  static const Schemas all(std::string(LOCKSTEP_TEST_DATA) + "/schemas/kubernetes.json");
  for (const char* name : {"jaxjob-mnist.yaml", "jaxjob-spmd-mnist.yaml"}) {
    SCOPED_TRACE(name);
    const std::string text = read_text(LOCKSTEP_SOURCE_DIR "/examples/jobs/" + std::string(name));
    const Json job = parse_yaml_documents(text, name).at(0).value;
    for (const std::string& fault : all.faults(job)) ADD_FAILURE() << fault;
    const Json pod = job["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"];
    for (const char* field : {"tolerations", "terminationGracePeriodSeconds", "automountServiceAccountToken"})
      EXPECT_EQ(pod[field], rendered[field]) << field;
    for (const char* field : {"runAsNonRoot", "runAsUser", "seccompProfile"})
      EXPECT_EQ(pod["securityContext"][field], rendered["securityContext"][field]) << field;
    for (const char* field : {"securityContext", "readinessProbe"})
      EXPECT_EQ(nlohmann::json(pod["containers"][0][field]), nlohmann::json(rendered["containers"][0][field])) << field;
    EXPECT_EQ(nlohmann::json(pod["containers"][0]["resources"]),
              nlohmann::json(rendered["containers"][0]["resources"]));
    EXPECT_GT(job["spec"]["runPolicy"]["backoffLimit"], 0);
    EXPECT_TRUE(parse_manifests(text, name).notes.empty());
  }
}

TEST(Documentation, HasEveryVariable) {
  const std::string page = read_text(LOCKSTEP_SOURCE_DIR "/docs/how-to/kubernetes.md");
  for (const ManifestVariable& each : manifest_variables())
    EXPECT_NE(page.find("`" + std::string(each.name) + "`"), std::string::npos) << each.name;
}

// A mounted token exists on Kubernetes only. Other runners generate one for each job.
TEST(LocalJobs, IgnoreTheMountedToken) {
  for (const char* kind : {"indexed-job", "jaxjob"}) {
    const Manifests found = parse_manifests(render_manifest({.kind = kind}), "job.yaml");
    for (const auto& [name, value] : found.jobs.at(0).spec.container.env) EXPECT_NE(name, "LOCKSTEP_TOKEN_FILE");
    for (const std::string& note : found.notes) EXPECT_EQ(note.find("volumeMounts"), std::string::npos) << note;
  }
  const Manifests claims =
      parse_manifests(render_manifest({.kind = "jaxjob", .variables = {{"volumes", {"data:/data"}}}}), "job.yaml");
  EXPECT_NE(claims.notes.back().find("volumeMounts is ignored here"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
