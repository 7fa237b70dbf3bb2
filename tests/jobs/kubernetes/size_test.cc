// The number of processes of a job on a cluster cannot change while it runs.
#include "jobs/kubernetes/cluster.h"

namespace lockstep {
namespace {

class Size : public KubernetesCluster {
 protected:
  std::string jax_job(int replicas) const {
    return write("job.yaml", fmt::format(R"(apiVersion: kubeflow.org/v1
kind: JAXJob
metadata: {{name: ej}}
spec:
  jaxReplicaSpecs:
    Worker:
      replicas: {}
      template: {{spec: {{containers: [{{name: jax, image: x}}]}}}}
)",
                                         replicas));
  }
  std::string indexed_job(int processes) const {
    return write("job.yaml", fmt::format(R"(apiVersion: batch/v1
kind: Job
metadata: {{name: ij}}
spec:
  completionMode: Indexed
  completions: {0}
  parallelism: {0}
  template: {{spec: {{restartPolicy: Never, containers: [{{name: main, image: x}}]}}}}
)",
                                         processes));
  }
  int replicas() const {
    return server_.get("jaxjobs", "default", "ej")["spec"]["jaxReplicaSpecs"]["Worker"]["replicas"].get<int>();
  }
};

TEST_F(Size, OfARunningJaxJobCannotChange) {
  out_of({"apply", "-f", jax_job(2)});
  const auto result = run({"apply", "-f", jax_job(3)});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err,
            "lockstep: apply: JAXJob \"ej\" is running, and its replicas cannot be changed (2 -> 3); "
            "suspend it first (lockstep suspend jaxjob/ej -n default --on kubernetes), delete it (lockstep delete "
            "jaxjob/ej -n default --on kubernetes), or use another name\n");
  EXPECT_EQ(replicas(), 2);
}

TEST_F(Size, OfASuspendedJaxJobCanChange) {
  out_of({"apply", "-f", jax_job(2)});
  out_of({"suspend", "ej"});
  EXPECT_EQ(out_of({"apply", "-f", jax_job(3)}), "jaxjob.kubeflow.org/ej configured\n");
  EXPECT_EQ(replicas(), 3);
  EXPECT_EQ(server_.get("jaxjobs", "default", "ej")["spec"]["runPolicy"]["suspend"], true);
}

TEST_F(Size, OfARunningIndexedJobCannotChange) {
  out_of({"apply", "-f", indexed_job(2)});
  const auto result = run({"apply", "-f", indexed_job(3)});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(contains(result.err, "Job \"ij\" is running, and its completions cannot be changed (2 -> 3)"))
      << result.err;
  EXPECT_EQ(server_.get("jobs", "default", "ij")["spec"]["completions"], 2);
  // A manifest undoes a change of the number that run at once.
  Json job = server_.get("jobs", "default", "ij");
  job["spec"]["parallelism"] = 1;
  server_.put(job);
  out_of({"apply", "-f", indexed_job(2)});
  EXPECT_EQ(server_.get("jobs", "default", "ij")["spec"]["parallelism"], 2);
}

TEST_F(Size, OfAFinishedJobMayDiffer) {
  out_of({"apply", "-f", jax_job(2)});
  Json job = server_.get("jaxjobs", "default", "ej");
  job["status"]["conditions"] = Json::array({{{"type", "Succeeded"}, {"status", "True"}}});
  server_.put(job);
  EXPECT_EQ(out_of({"apply", "-f", jax_job(3)}), "jaxjob.kubeflow.org/ej configured\n");
}

}  // namespace
}  // namespace lockstep
