// Manifests of all kinds satisfy the published schemas, run without privileges, and configure the processes correctly.
#include "jobs/kubernetes/manifests.h"

#include <gtest/gtest.h>

#include <bit>

#include "base/file.h"
#include "base/os/process.h"
#include "base/throws.h"
#include "jobs/kubernetes/required_objects.h"
#include "jobs/kubernetes/schema.h"
#include "jobs/kubernetes/templates.h"
#include "jobs/kubernetes/variables.h"
#include "jobs/model/manifest.h"
#include "jobs/model/yaml_document.h"
#include "lockstep/error.h"
#include "support/program.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

const Schemas& schemas() {
  static const Schemas all(std::string(LOCKSTEP_TEST_DATA) + "/schemas/kubernetes.json");
  return all;
}

Json variables(const Json& given) {
  Json all = given;
  if (!all.contains("token") && !all.contains("token_secret")) all["token"] = "0123456789abcdef";
  return all;
}

std::vector<Json> documents(const std::string& kind, const Json& given) {
  std::vector<Json> out;
  for (const YamlDocument& each :
       parse_yaml_documents(render_manifest({.kind = kind, .variables = variables(given)}), kind))
    out.push_back(each.value);
  return out;
}

Json document(const std::string& kind, const Json& given, const std::string& wanted) {
  for (const Json& each : documents(kind, given))
    if (each["kind"] == wanted) return each;
  ADD_FAILURE() << "no " << wanted << " in a manifest of kind " << kind;
  return {};
}

// The pod template of a manifest. REQUIRES: not a trainjob.
Json pod_of(const std::string& kind, const Json& given) {
  if (kind == "indexed-job") return document(kind, given, "Job")["spec"]["template"]["spec"];
  if (kind == "jaxjob") return document(kind, given, "JAXJob")["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"];
  return document(kind, given, "JobSet")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"];
}

// Combinations of settings that affect different parts of the manifests: none, each, each pair, and all.
std::vector<Json> matrix(const std::string& kind) {
  std::vector<Json> parts = {
      {{"gpus", true}, {"local_device_count", 4}},
      {{"checkpoint_claim", "disk"}, {"active_deadline", 3600}},
      {{"namespace", "team"}, {"node_selector", {{"pool", "gpu"}}}},
      {{"env", {{"LOCKSTEP_VERBOSE", "1"}, {"NOTE", "yes: \"quoted\" # {{ x }}\n"}}}, {"command", {"/bin/lockstep"}}},
      {{"token_secret", "ours"}, {"suspend", true}},
      {{"labels", {{"team", "a"}}}, {"annotations", {{"sidecar.istio.io/inject", "false"}}}, {"queue", "gpu-queue"}},
      {{"tolerations", {{{"key", "dedicated"}, {"operator", "Exists"}}}},
       {"affinity",
        {{"nodeAffinity",
          {{"requiredDuringSchedulingIgnoredDuringExecution",
            {{"nodeSelectorTerms",
              {{{"matchExpressions", {{{"key", "zone"}, {"operator", "In"}, {"values", {"a"}}}}}}}}}}}}}},
       {"image_pull_secrets", {"registry"}},
       {"service_account", "trainer"}},
      {{"volumes", {"data:/data:ro", "runs:/runs"}},
       {"cpu_limit", 4},
       {"ephemeral_storage", "20Gi"},
       {"shm", "1Gi"},
       {"initialization_timeout", 60}}};
  if (kind != "trainjob") {
    parts.push_back({{"ttl", 60}, {"backoff", 3}, {"port", 8080}, {"image_pull_policy", "Always"}});
    parts.push_back(
        {{"network_policy", true},
         {"priority_class", "high"},
         {"runtime_class", "nvidia"},
         {"safe_to_evict", true},
         {"topology_spread", {{{"maxSkew", 1}, {"topologyKey", "rack"}, {"whenUnsatisfiable", "ScheduleAnyway"}}}}});
  }
  std::vector<Json> out;
  const unsigned all = (1u << parts.size()) - 1;
  for (unsigned subset = 0; subset <= all; ++subset) {
    if (std::popcount(subset) > 2 && subset != all) continue;
    Json given = {{"hosts_count", 2}};
    for (size_t i = 0; i < parts.size(); ++i)
      if (subset >> i & 1) given.update(parts[i]);
    out.push_back(std::move(given));
  }
  return out;
}

TEST(Manifests, SatisfyThePublishedSchemas) {
  for (const std::string& kind : manifest_kinds())
    for (const Json& given : matrix(kind))
      for (const Json& object : documents(kind, given)) {
        const std::vector<std::string> faults = schemas().faults(object);
        for (const std::string& fault : faults) ADD_FAILURE() << kind << " of " << given.dump() << ": " << fault;
        if (!faults.empty()) return;
      }
}

TEST(Schemas, FindSeededErrors) {
  const Json job = document("indexed-job", {}, "Job");
  ASSERT_TRUE(schemas().faults(job).empty());
  const auto expect = [&](const Json& patch, const std::string& fault) {
    Json broken = job;
    broken.merge_patch(patch);
    const std::vector<std::string> found = schemas().faults(broken);
    ASSERT_EQ(found.size(), 1u) << patch.dump();
    EXPECT_EQ(found[0], fault);
  };
  expect({{"spec", {{"paralelism", 2}}}}, "batch/v1 Job.spec.paralelism: unknown field");
  expect({{"spec", {{"completions", "2"}}}}, "batch/v1 Job.spec.completions: \"2\" is not of type integer");
  expect({{"spec", {{"suspend", "false"}}}}, "batch/v1 Job.spec.suspend: \"false\" is not of type boolean");
  expect({{"spec", {{"template", nullptr}}}}, "batch/v1 Job.spec: template is missing");
  expect({{"metadata", {{"labels", {{"a", 1}}}}}}, "batch/v1 Job.metadata.labels.a: 1 is not of type string");
  expect({{"spec", {{"template", {{"spec", {{"volumes", {{{"name", "x"}, {"disk", 1}}}}}}}}}}},
         "batch/v1 Job.spec.template.spec.volumes[0].disk: unknown field");
  expect({{"kind", "Jbo"}}, "no schema for batch/v1 Jbo");

  Json set = document("jobset", {}, "JobSet");
  set["spec"]["failurePolicy"]["rules"][0]["action"] = "Explode";
  ASSERT_EQ(schemas().faults(set).size(), 1u);
  EXPECT_NE(schemas().faults(set)[0].find("\"Explode\" is not one of [\"FailJobSet\""), std::string::npos);
  Json train = document("trainjob", {}, "TrainJob");
  train["spec"]["runtimeRef"]["name"] = "";
  ASSERT_EQ(schemas().faults(train).size(), 1u);
  EXPECT_NE(schemas().faults(train)[0].find("violates minLength"), std::string::npos);
}

// The Restricted profile of the Pod Security Standards.
TEST(Manifests, SatisfyTheRestrictedProfile) {
  const auto expect_restricted = [](const Json& pod, const Json& container) {
    EXPECT_EQ(pod["securityContext"]["runAsNonRoot"], true);
    EXPECT_NE(pod["securityContext"]["runAsUser"], 0);
    EXPECT_EQ(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    EXPECT_EQ(container["securityContext"]["allowPrivilegeEscalation"], false);
    EXPECT_EQ(container["securityContext"]["readOnlyRootFilesystem"], true);
    EXPECT_EQ(container["securityContext"]["capabilities"]["drop"], Json::array({"ALL"}));
    EXPECT_FALSE(container["securityContext"].contains("privileged"));
    for (const char* field : {"hostNetwork", "hostPID", "hostIPC"}) EXPECT_FALSE(pod.contains(field));
  };
  for (const char* kind : {"indexed-job", "jaxjob", "jobset"}) {
    const Json pod = pod_of(kind, {});
    expect_restricted(pod, pod["containers"][0]);
    EXPECT_EQ(pod["automountServiceAccountToken"], false);  // the pods do not use the API server
  }
  const Json patch =
      document("trainjob", {}, "TrainJob")["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]
                                          ["replicatedJobs"][0]["template"]["spec"]["template"]["spec"];
  expect_restricted(patch, patch["containers"][0]);
}

TEST(Manifests, GpusAreRequestedOnlyIfSet) {
  for (const char* kind : {"indexed-job", "jaxjob", "jobset"}) {
    EXPECT_FALSE(pod_of(kind, {})["containers"][0]["resources"]["limits"].contains("nvidia.com/gpu"));
    EXPECT_EQ(pod_of(kind, {{"gpus", true},
                            {"local_device_count", 2}})["containers"][0]["resources"]["limits"]["nvidia.com/gpu"],
              2);
  }
}

TEST(IndexedJob, HasAHeadlessServiceAndOnePodPerHost) {
  const Json given = {
      {"hosts_count", 2}, {"local_device_count", 2}, {"name", "myjob"}, {"service", "mysvc"}, {"port", 8080}};
  const Json service = document("indexed-job", given, "Service"), job = document("indexed-job", given, "Job");
  EXPECT_EQ(service["metadata"]["name"], "mysvc");
  EXPECT_EQ(service["spec"]["clusterIP"], "None");
  EXPECT_EQ(service["spec"]["publishNotReadyAddresses"], true);
  EXPECT_EQ(service["spec"]["selector"], Json({{"job-name", "myjob"}}));
  EXPECT_EQ(job["metadata"]["name"], "myjob");
  EXPECT_EQ(job["spec"]["completionMode"], "Indexed");
  EXPECT_EQ(job["spec"]["completions"], 2);
  EXPECT_EQ(job["spec"]["parallelism"], 2);
  EXPECT_EQ(job["spec"]["backoffLimit"], 0);
  EXPECT_EQ(job["spec"]["template"]["spec"]["subdomain"], "mysvc");
  EXPECT_EQ(job["spec"]["template"]["spec"]["restartPolicy"], "Never");  // podFailurePolicy needs it
}

// How a pod ended: its exit code, and whether Kubernetes evicted it.
struct PodEnd {
  int code = 0;
  bool disrupted = false;
};

// The decision of the Job controller for pods that ended together, according to its documentation: the first matching
// rule applies, and a failure without a rule counts. Returns "failed" if a rule or the limit fails the job.
std::string outcome(const Json& job, const std::vector<PodEnd>& ends) {
  int counted = 0;
  for (const PodEnd& end : ends) {
    std::string action = end.code == 0 ? "Ignore" : "Count";
    for (const Json& rule : job["spec"]["podFailurePolicy"]["rules"]) {
      const bool by_code = rule.contains("onExitCodes");
      const Json codes = by_code ? rule["onExitCodes"]["values"] : Json::array();
      if (end.code == 0 || (by_code ? std::ranges::find(codes, Json(end.code)) == codes.end() : !end.disrupted))
        continue;
      action = rule["action"];
      break;
    }
    if (action == "FailJob") return "failed";
    counted += action == "Count" ? 1 : 0;
  }
  return counted > job["spec"]["backoffLimit"].get<int>() ? "failed" : fmt::format("{} counted", counted);
}

TEST(IndexedJob, OnlyTheFirstCauseCounts) {
  const Json job = document("indexed-job", {{"hosts_count", 3}}, "Job");
  EXPECT_EQ(job["spec"]["backoffLimit"], 0);
  constexpr int kSurvivor = 75, kCause = 74;
  // An eviction ends the other pods with 75.
  EXPECT_EQ(outcome(job, {{143, true}, {kSurvivor}, {kSurvivor}}), "0 counted");
  EXPECT_EQ(outcome(job, {{1, true}, {kSurvivor}, {kSurvivor}}), "0 counted");
  // A process that is killed, hangs or cannot join: its failure counts, so that restarts are limited.
  EXPECT_EQ(outcome(job, {{137}, {kSurvivor}, {kSurvivor}}), "failed");
  EXPECT_EQ(outcome(job, {{kCause}, {kSurvivor}, {kSurvivor}}), "failed");
  const Json retried = document("indexed-job", {{"hosts_count", 3}, {"backoff", 2}}, "Job");
  // Pods that die together count one each, so two restarts are certain.
  EXPECT_EQ(retried["spec"]["backoffLimit"], 6);
  EXPECT_EQ(outcome(retried, {{137}, {kSurvivor}, {kSurvivor}}), "1 counted");
  EXPECT_EQ(outcome(retried, {{137}, {137}, {137}, {137}, {137}, {137}}), "6 counted");
  for (const int error : {1, 2, 3}) EXPECT_EQ(outcome(retried, {{error}, {kSurvivor}}), "failed");
  // The manifest sets the exit code of the first cause.
  for (const char* kind : {"indexed-job", "jobset"})
    EXPECT_NE(render_manifest({.kind = kind}).find("name: LOCKSTEP_FIRST_CAUSE_CODE\n"), std::string::npos) << kind;
}

// The objects that the runner creates for a job applied alone equal those of the rendered manifest.
TEST(RequiredObjects, EqualThoseOfTheManifest) {
  for (const char* kind : {"indexed-job", "jaxjob"}) {
    const std::string job_kind = kind == std::string("jaxjob") ? "JAXJob" : "Job";
    const Json given = {{"name", "myjob"}, {"namespace", "team"}, {"port", 8080}};
    Json job = document(kind, given, job_kind);
    job["metadata"]["uid"] = "u-1";
    const std::vector<Json> made = required_objects(job, "0123456789abcdef");
    ASSERT_EQ(made.size(), documents(kind, given).size() - 1);
    for (Json each : made) {
      EXPECT_TRUE(schemas().faults(each).empty());
      EXPECT_EQ(each["metadata"]["ownerReferences"][0]["uid"], "u-1");
      each["metadata"].erase("ownerReferences");
      EXPECT_EQ(nlohmann::json(each), nlohmann::json(document(kind, given, each["kind"])));
    }
  }
  Json plain = document("indexed-job", {}, "Job");
  plain["spec"]["template"]["spec"].erase("subdomain");
  plain["spec"]["template"]["spec"]["containers"][0].erase("env");
  plain["metadata"]["uid"] = "u";
  EXPECT_TRUE(required_objects(plain, "x").empty());
}

TEST(Manifests, ContainTheTokenOnlyInASecret) {
  for (const std::string& kind : manifest_kinds()) {
    const std::string text = render_manifest({.kind = kind, .variables = {{"token", "0123456789abcdef"}}});
    EXPECT_EQ(text.find("0123456789abcdef"), text.rfind("0123456789abcdef")) << kind;
    EXPECT_EQ(document(kind, {}, "Secret")["stringData"]["token"], "0123456789abcdef");
    for (const Json& each : documents(kind, {{"token_secret", "ours"}})) EXPECT_NE(each["kind"], "Secret");
    EXPECT_NE(render_manifest({.kind = kind}), render_manifest({.kind = kind}));  // a new token every time
  }
}

TEST(Manifests, NamesThatYamlWouldMisreadAreQuoted) {
  for (const char* name : {"true", "null", "yes", "on"}) {
    EXPECT_EQ(document("indexed-job", {{"name", name}}, "Job")["metadata"]["name"], name);
    const std::string text = render_manifest({.kind = "indexed-job", .variables = variables({{"name", name}})});
    EXPECT_NE(text.find("\"" + std::string(name) + "\""), std::string::npos);
  }
}

// The local runner can parse the rendered manifests.
TEST(Manifests, OfSupportedKindsAreParsedLocally) {
  for (const char* kind : {"indexed-job", "jaxjob"})
    for (const Json& given : matrix(kind)) {
      const Manifests found =
          parse_manifests(render_manifest({.kind = kind, .variables = variables(given)}), "job.yaml");
      ASSERT_EQ(found.jobs.size(), 1u);
      EXPECT_EQ(found.jobs[0].spec.replicas, 2);
      EXPECT_EQ(found.jobs[0].spec.suspend, given.value("suspend", false));
    }
}

TEST(Manifests, AUserTemplateIncludesBuiltinsAndFilesOfItsFolder) {
  const TempDir dir;
  const auto write = [&](const std::string& name, const std::string& text) {
    FileSystem::real().write(dir.path() + "/" + name, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  };
  write("own.j2", "{% include 'mine.j2' %} {{ colour }}\n{% include 'metadata.yaml.j2' %}\n");
  write("mine.j2", "mine of {{ name }}\n");
  EXPECT_EQ(render_manifest({.variables = {{"colour", "red"}, {"name", "x"}}, .template_file = dir.path() + "/own.j2"}),
            "mine of x red\nlabels:\n  app.kubernetes.io/name: lockstep\n  app.kubernetes.io/instance: \"x\"\n");
  EXPECT_THROWS(render_manifest({.kind = "cronjob"}), Error, "kind: unknown value \"cronjob\"");
}

TEST(RenderCommand, WritesManifestsAndTemplates) {
  const TempDir dir;
  const std::string file = dir.path() + "/job.yaml";
  ASSERT_EQ(run_lockstep(
                {"render", "kubernetes", "--kind", "jobset", "--set", "name=a", "--set", "hosts_count=4", "-o", file})
                .exit_code,
            0);
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(file);
  EXPECT_EQ(parse_yaml_documents(std::string(bytes.begin(), bytes.end()), file).size(), 2u);

  const std::string folder = dir.path() + "/templates";
  ASSERT_EQ(run_lockstep({"render", "kubernetes", "--write-templates", folder}).exit_code, 0);
  EXPECT_EQ(FileSystem::real().list(folder).size(), builtin_templates().size());
  const auto again = run_lockstep({"render", "kubernetes", "--write-templates", folder});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_NE(again.output.find("already exists; choose another folder"), std::string::npos);
  const auto own = run_lockstep({"render", "kubernetes", "--template", folder + "/jaxjob.yaml.j2", "--kind", "jaxjob",
                                 "--set", "token_secret=x"});
  EXPECT_EQ(own.output, run_lockstep({"render", "kubernetes", "--kind", "jaxjob", "--set", "token_secret=x"}).output);
}

TEST(RenderCommand, InvalidVariablesAreUsageErrors) {
  expect_usage_error({"render", "kubernetes", "--set", "hosts_count=0"},
                     "render kubernetes: variables: hosts_count is 0; use a whole number from 1 to 4096");
  const auto missing = run_lockstep({"render", "kubernetes", "--variables", "/nowhere/variables.json"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.output.find("/nowhere/variables.json: No such file"), std::string::npos) << missing.output;
  EXPECT_EQ(run_lockstep({"render", "kubernetes", "--kind", "pod"}).exit_code, 2);
}

// A server-side dry run with the real kubectl, if a cluster is available.
TEST(Manifests, AreAcceptedByACluster) {
  if (find_program("kubectl").empty() ||
      run_process({"kubectl", "version", "--request-timeout=5s"}, std::chrono::seconds(15)).exit_code != 0)
    GTEST_SKIP() << "no kubectl, or no cluster";
  const TempDir dir;
  for (const std::string& kind : manifest_kinds()) {
    const std::string file = dir.path() + "/" + kind + ".yaml";
    ASSERT_EQ(run_lockstep({"render", "kubernetes", "--kind", kind, "-o", file}).exit_code, 0);
    const auto result = run_process({"kubectl", "apply", "--dry-run=server", "-f", file}, std::chrono::seconds(60));
    if (result.output.find("no matches for kind") != std::string::npos) continue;  // the operator is not installed
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
}

}  // namespace
}  // namespace lockstep
