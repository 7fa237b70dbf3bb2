// `lockstep submit` on a cluster, and dry runs on its API server.
#include <algorithm>

#include "jobs/kubernetes/cluster.h"
#include "jobs/kubernetes/manifests.h"
#include "jobs/model/yaml_document.h"

namespace lockstep {
namespace {

class Submit : public KubernetesCluster {
 protected:
  static Json without_server_fields(Json object) {
    for (const char* each : {"uid", "resourceVersion", "creationTimestamp", "annotations", "namespace"})
      object["metadata"].erase(each);
    return object;
  }
};

TEST_F(Submit, MakesAnIndexedJobWithoutKubeflow) {
  server_.remove_kubeflow();
  const auto result =
      run({"submit", "-n", "2", "--name", "sj", "--volume", "runs:/data", "--", "train", "--run-dir", "/data/run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "service/sj created\njob.batch/sj created\n");
  const Json job = server_.get("jobs", "default", "sj");
  ASSERT_FALSE(job.is_null());
  // The job is the one that `lockstep render` writes.
  const std::vector<YamlDocument> rendered =
      parse_yaml_documents(render_manifest({.kind = "indexed-job",
                                            .variables = {{"name", "sj"},
                                                          {"hosts_count", 2},
                                                          {"backoff", 3},
                                                          {"command", {"lockstep"}},
                                                          {"args", {"train", "--run-dir", "/data/run"}},
                                                          {"volumes", {"runs:/data"}},
                                                          {"local_device_count", nullptr},
                                                          {"token_secret", "sj-token"}}}),
                           "job.yaml");
  EXPECT_EQ(nlohmann::json(without_server_fields(job)), nlohmann::json(rendered.back().value));
  // What it needs exists and is deleted with it.
  for (const auto& [resource, name] : {std::pair("secrets", "sj-token"), std::pair("services", "sj")}) {
    const Json object = server_.get(resource, "default", name);
    ASSERT_TRUE(object.contains("/metadata/ownerReferences/0/uid"_json_pointer)) << resource;
    EXPECT_EQ(object["metadata"]["ownerReferences"][0]["uid"], job["metadata"]["uid"]);
  }
  EXPECT_FALSE(contains(result.out + result.err, server_.get("secrets", "default", "sj-token")["stringData"]["token"]));
}

TEST_F(Submit, MakesAJaxJobWithKubeflow) {
  const auto result =
      run({"submit", "-n", "2", "--name", "sj", "--gpus", "2", "--set", "priority_class=high", "--", "train"});
  EXPECT_EQ(result.out, "jaxjob.kubeflow.org/sj created\n") << result.err;
  const Json worker = server_.get("jaxjobs", "default", "sj")["spec"]["jaxReplicaSpecs"]["Worker"],
             pod = worker["template"]["spec"];
  EXPECT_EQ(worker["restartPolicy"], "OnFailure");  // the only one whose restarts Kubeflow limits
  EXPECT_EQ(pod["securityContext"]["runAsNonRoot"], true);
  EXPECT_EQ(pod["containers"][0]["securityContext"]["allowPrivilegeEscalation"], false);
  EXPECT_TRUE(pod["containers"][0].contains("readinessProbe"));
  EXPECT_EQ(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], 2);
  EXPECT_EQ(pod["priorityClassName"], "high");
  EXPECT_FALSE(server_.get("secrets", "default", "sj-token").is_null());
  EXPECT_EQ(run({"submit", "--kind", "indexed-job", "--name", "ij", "--", "train"}).out,
            "service/ij created\njob.batch/ij created\n");
}

TEST_F(Submit, WrongVariablesAreUsageErrors) {
  const auto result = run({"submit", "--kind", "jaxjob", "--volume", "runs", "--", "train"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "lockstep: submit: volumes is \"runs\"; use a list of CLAIM:PATH, such as [\"data:/data:ro\"]\n");
  EXPECT_EQ(run({"submit", "--kind", "jaxjob", "--set", "colour=red", "--", "train"}).exit_code, 2);
}

class DryRun : public KubernetesCluster {};

TEST_F(DryRun, OfApplyAsksTheApiServer) {
  const std::string file = dir_.path() + "/job.yaml";
  ASSERT_EQ(run_lockstep({"render", "kubernetes", "--set", "name=rb", "-o", file}).exit_code, 0);
  for (const char* flag : {"--dry-run", "--dry-run=server"})
    EXPECT_EQ(out_of({"apply", flag, "-f", file}),
              "secret/rb-token created (server dry run)\nservice/rb created (server dry run)\njob.batch/rb created "
              "(server dry run)\n");
  EXPECT_TRUE(server_.get("jobs", "default", "rb").is_null());
  EXPECT_TRUE(server_.get("secrets", "default", "rb-token").is_null());
  EXPECT_EQ(out_of({"apply", "--dry-run=client", "-f", file}), "job.batch/rb is valid (dry run)\n");
  server_.forbid("create", "jobs");
  const auto refused = run({"apply", "--dry-run", "-f", file});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(contains(refused.err, "cannot create resource \"jobs\"")) << refused.err;
  const auto local = RunningProgram({program_path(), "apply", "--on", "local", "--dry-run=server", "-f", file}).wait();
  EXPECT_EQ(local.exit_code, 2);
  EXPECT_TRUE(contains(local.err, "--dry-run=server needs an API server, but jobs run on local; add --on kubernetes"));
}

}  // namespace
}  // namespace lockstep
