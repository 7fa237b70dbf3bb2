// apply and delete on a cluster: every object of a file, the token, and objects that cannot be created.
#include <algorithm>

#include "jobs/kubernetes/cluster.h"

namespace lockstep {
namespace {

constexpr const char* kTokenless = R"(apiVersion: batch/v1
kind: Job
metadata: {name: rb}
spec:
  completionMode: Indexed
  completions: 2
  parallelism: 2
  template:
    spec:
      subdomain: rb
      restartPolicy: Never
      containers:
      - {name: main, image: lockstep:1, args: [train]}
)";

class Apply : public KubernetesCluster {
 protected:
  static Json token_source(const Json& pod) {
    for (const Json& each : pod["containers"][0].value("env", Json::array()))
      if (each["name"] == "LOCKSTEP_TOKEN") return each["valueFrom"]["secretKeyRef"];
    return {};
  }
};

TEST_F(Apply, TheSecretThatAJobNamesIsCreatedBeforeIt) {
  const std::string file = std::string(LOCKSTEP_SOURCE_DIR) + "/examples/jobs/jaxjob-mnist.yaml";
  const auto result = run({"apply", "-f", file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "jaxjob.kubeflow.org/jaxjob-mnist created\n");
  EXPECT_TRUE(contains(result.err, "note: created the missing Secret jaxjob-mnist-token; it is deleted with the job\n"))
      << result.err;
  const std::vector<std::string> all = server_.requests();
  const auto secret_made = std::ranges::find(all, "POST /api/v1/namespaces/kubeflow/secrets"),
             job_made = std::ranges::find(all, "POST /apis/kubeflow.org/v1/namespaces/kubeflow/jaxjobs");
  ASSERT_NE(job_made, all.end());
  EXPECT_LT(secret_made, job_made);
  const Json job = server_.get("jaxjobs", "kubeflow", "jaxjob-mnist");
  const Json secret = server_.get("secrets", "kubeflow", "jaxjob-mnist-token");
  ASSERT_FALSE(secret.is_null());
  EXPECT_GE(secret["stringData"]["token"].get<std::string>().size(), 32u);
  EXPECT_EQ(secret["metadata"]["ownerReferences"][0]["uid"], job["metadata"]["uid"]);

  // Applying it again changes nothing.
  EXPECT_EQ(out_of({"apply", "-f", file}), "jaxjob.kubeflow.org/jaxjob-mnist unchanged\n");
  EXPECT_EQ(kubectl({"apply", "-f", file}).out, "jaxjob.kubeflow.org/jaxjob-mnist unchanged\n");
  EXPECT_EQ(server_.get("secrets", "kubeflow", "jaxjob-mnist-token"), secret);
  EXPECT_EQ(out_of({"delete", "-f", file}), "jaxjob.kubeflow.org \"jaxjob-mnist\" deleted from kubeflow namespace\n");
  EXPECT_TRUE(server_.get("secrets", "kubeflow", "jaxjob-mnist-token").is_null());
}

TEST_F(Apply, AnIndexedJobWithoutATokenGetsOneThatKubectlKeeps) {
  const std::string file = write("job.yaml", kTokenless);
  const auto result = run({"apply", "-f", file});
  EXPECT_EQ(result.out, "job.batch/rb created\n") << result.err;
  EXPECT_TRUE(contains(result.err,
                       "note: the job has no token: added LOCKSTEP_TOKEN from the new Secret rb-token, which is "
                       "deleted with the job\n"))
      << result.err;
  EXPECT_EQ(out_of({"apply", "-f", file}), "job.batch/rb unchanged\n");
  const ProgramResult applied = kubectl({"apply", "-f", file});
  EXPECT_EQ(applied.out, "job.batch/rb unchanged\n") << applied.err;
  const Json job = server_.get("jobs", "default", "rb");
  EXPECT_EQ(token_source(job["spec"]["template"]["spec"]), Json({{"key", "token"}, {"name", "rb-token"}}));
}

// kubectl replaces the list of containers of a JAXJob as a whole, so nothing may be added to it.
TEST_F(Apply, KubectlDoesNotChangeAJaxJob) {
  const std::string file = write("job.yaml", R"(apiVersion: kubeflow.org/v1
kind: JAXJob
metadata: {name: ej}
spec:
  jaxReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - {name: jax, image: "lockstep:1", args: [train, "--expect=test_accuracy>=0.9"]}
)");
  EXPECT_EQ(out_of({"apply", "-f", file}), "jaxjob.kubeflow.org/ej created\n");
  const Json job = server_.get("jaxjobs", "default", "ej");
  const ProgramResult applied = kubectl({"apply", "-f", file});
  EXPECT_EQ(applied.out, "jaxjob.kubeflow.org/ej unchanged\n") << applied.err;
  EXPECT_EQ(server_.get("jaxjobs", "default", "ej"), job);
}

// Such as one that an earlier version of lockstep added.
TEST_F(Apply, TheTokenOfARunningJaxJobStays) {
  const std::string text = R"({"apiVersion":"kubeflow.org/v1","kind":"JAXJob","metadata":{"name":"ej"},"spec":{
    "jaxReplicaSpecs":{"Worker":{"replicas":2,"template":{"spec":{"containers":[{"image":"x","name":"jax"}]}}}}}})";
  Json job = Json::parse(text);
  Json& container = job["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0];
  container["env"] = Json::array(
      {{{"name", "LOCKSTEP_TOKEN"}, {"valueFrom", {{"secretKeyRef", {{"key", "token"}, {"name", "ej-token"}}}}}}});
  job["metadata"]["annotations"] = {{"kubectl.kubernetes.io/last-applied-configuration", job.dump()}};
  server_.put(job);
  out_of({"apply", "-f", write("job.yaml", text)});
  EXPECT_EQ(token_source(server_.get("jaxjobs", "default",
                                     "ej")["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"])["name"],
            "ej-token");
  EXPECT_FALSE(server_.get("secrets", "default", "ej-token").is_null());
}

TEST_F(Apply, AnExistingJobWithoutATokenIsNotChanged) {
  Json job = make_job("rb");
  job["metadata"]["annotations"] = {{"kubectl.kubernetes.io/last-applied-configuration", "{}"}};
  server_.put(job);
  const auto result = run({"apply", "-f", write("job.yaml", kTokenless)});
  EXPECT_FALSE(contains(result.err, "token")) << result.err;
  EXPECT_TRUE(server_.get("secrets", "default", "rb-token").is_null());
}

TEST_F(Apply, WithoutPermissionForSecretsTheJobIsNotCreated) {
  server_.forbid("create", "secrets");
  const auto result = run({"apply", "-f", write("job.yaml", kTokenless)});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(contains(result.err, "cannot create resource \"secrets\"")) << result.err;
  EXPECT_TRUE(contains(result.err, "job.batch/rb cannot run without it and was not created\n")) << result.err;
  EXPECT_TRUE(server_.get("jobs", "default", "rb").is_null());
  EXPECT_TRUE(server_.get("services", "default", "rb").is_null());
}

TEST_F(Apply, AJobThatCannotBeCreatedLeavesNothing) {
  server_.forbid("create", "jobs");
  const auto result = run({"apply", "-f", write("job.yaml", kTokenless)});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(contains(result.err, "kubectl create: ")) << result.err;
  EXPECT_TRUE(contains(result.err, "cannot create resource \"jobs\"")) << result.err;
  EXPECT_TRUE(server_.get("secrets", "default", "rb-token").is_null());
  EXPECT_TRUE(server_.get("services", "default", "rb").is_null());
}

TEST_F(Apply, AllObjectsOfAFileAreAppliedAndDeleted) {
  const std::string file = write("all.yaml", std::string(kTokenless) + R"(---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: "1"}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: trainer}
---
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: Secret
metadata: {name: rb-token}
stringData: {token: mine}
)");
  const auto result = run({"apply", "-f", file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "namespace/team created\nconfigmap/settings created\nserviceaccount/trainer created\nsecret/rb-token "
            "created\njob.batch/rb created\n");
  // The Secret of the file is used.
  EXPECT_EQ(server_.get("secrets", "default", "rb-token")["stringData"]["token"], "mine");
  EXPECT_EQ(token_source(server_.get("jobs", "default", "rb")["spec"]["template"]["spec"])["name"], "rb-token");
  EXPECT_FALSE(contains(result.err, "Secret")) << result.err;

  const std::string deleted = out_of({"delete", "-f", file});
  EXPECT_TRUE(deleted.starts_with("job.batch \"rb\" deleted from default namespace\n")) << deleted;
  for (const char* each : {"configmap \"settings\"", "secret \"rb-token\"", "namespace \"team\""})
    EXPECT_TRUE(contains(deleted, std::string(each) + " deleted")) << deleted;
  for (const auto& [resource, name] : {std::pair("configmaps", "settings"), std::pair("secrets", "rb-token"),
                                       std::pair("services", "rb"), std::pair("serviceaccounts", "trainer")})
    EXPECT_TRUE(server_.get(resource, "default", name).is_null()) << name;
  const auto again = run({"delete", "-f", file});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_TRUE(contains(again.err, "configmaps \"settings\" not found")) << again.err;
  EXPECT_EQ(run({"delete", "-f", file, "--ignore-not-found"}).exit_code, 0);
}

TEST_F(Apply, AFileWithoutAJobIsAppliedToo) {
  const std::string file = write("cm.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\n");
  EXPECT_EQ(out_of({"apply", "-f", file}), "configmap/cm created\n");
  EXPECT_FALSE(server_.get("configmaps", "default", "cm").is_null());
}

TEST_F(Apply, TheNamespaceIsThatOfTheContext) {
  use_namespace("team");
  out_of({"apply", "-f", write("job.yaml", kTokenless)});
  EXPECT_FALSE(server_.get("jobs", "team", "rb").is_null());
  EXPECT_TRUE(contains(out_of({"get", "jobs"}), "rb "));
  EXPECT_EQ(run({"get", "job/rb", "-n", "default"}).exit_code, 1);
  EXPECT_EQ(out_of({"delete", "rb"}), "job.batch \"rb\" deleted from team namespace\n");
}

TEST_F(Apply, AnImmutableFieldIsReportedInOneSentence) {
  const std::string file = write("job.yaml", kTokenless);
  out_of({"apply", "-f", file});
  std::string changed = kTokenless;
  changed.replace(changed.find("lockstep:1"), 10, "lockstep:2");
  const auto result = run({"apply", "-f", write("changed.yaml", changed)});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err,
            "lockstep: apply: Job \"rb\" exists and spec.template cannot be changed; delete it first (lockstep delete "
            "job.batch/rb -n default --on kubernetes), or use another name\n");
}

TEST_F(Apply, WarningsOfTheServerAreShown) {
  server_.warn("would violate PodSecurity \\\"restricted:latest\\\": runAsNonRoot != true");
  const auto result = run({"apply", "-f", write("job.yaml", kTokenless)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(
      contains(result.err, "note: kubectl: would violate PodSecurity \"restricted:latest\": runAsNonRoot != true\n"))
      << result.err;
}

TEST_F(Apply, ApplyWaitsForTheDeletionOfAnEarlierSecret) {
  Json old = {{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", {{"name", "rb-token"}}}};
  old["metadata"]["ownerReferences"] =
      Json::array({{{"apiVersion", "batch/v1"}, {"kind", "Job"}, {"name", "rb"}, {"uid", "earlier"}}});
  server_.put(old);
  RunningProgram program(words({"apply", "-f", write("job.yaml", kTokenless)}));
  EXPECT_TRUE(comes_true([&] {
    const auto all = server_.requests();
    return std::ranges::count(all, "GET /api/v1/namespaces/default/secrets/rb-token") > 1;
  }));
  server_.remove("secrets", "default", "rb-token");
  const auto result = program.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(server_.get("secrets", "default", "rb-token")["metadata"]["ownerReferences"][0]["uid"], "earlier");
}

}  // namespace
}  // namespace lockstep
