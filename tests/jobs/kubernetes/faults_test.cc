// Faults of a cluster, by the rules of its controllers: what the job commands report and return.
#include "jobs/kubernetes/cluster.h"
#include "jobs/kubernetes/controllers.h"

namespace lockstep {
namespace {

class Faults : public KubernetesCluster {
 protected:
  // Applies a rendered job of two processes.
  void apply(const Words& settings = {}, const std::string& kind = "indexed-job") {
    Words words = {"render", "kubernetes", "--kind", kind, "-o", file(), "--set", "name=rb", "--set", "hosts_count=2"};
    for (const std::string& each : settings) words = words + Words{"--set", each};
    ASSERT_EQ(run_lockstep(words).exit_code, 0);
    out_of({"apply", "-f", file()});
    cluster_.settle();
  }

  std::string file() const { return dir_.path() + "/job.yaml"; }
  std::string pod(int index) const {
    const auto live = cluster_.live_pods("rb");
    const auto found = live.find(index);
    return found == live.end() ? "" : found->second;
  }
  void end(int index, int code, const std::string& line = "") {
    const std::string name = pod(index);
    if (!line.empty()) server_.log("default", name, line);
    cluster_.end(name, code);
  }
  // Both processes succeed.
  void succeed() {
    for (const int i : {0, 1}) end(i, 0);
    cluster_.settle();
  }
  RunningProgram::Result wait_for(const std::string& condition) const {
    return run({"wait", "rb", "--for=condition=" + condition, "--timeout", "2s"});
  }
  Json status() const { return server_.get("jobs", "default", "rb")["status"]; }

  Controllers cluster_{server_};
};

TEST_F(Faults, ALostNodeIsReplacedAndDoesNotCount) {
  apply();
  const std::string lost = pod(1);
  cluster_.lose_node("n1");
  end(0, 75, "lost process 1");  // the partner of the lost process
  cluster_.advance(69);
  EXPECT_EQ(server_.get("pods", "default", lost)["metadata"].value("deletionTimestamp", ""), "");
  cluster_.advance(1);  // 40 s until the node counts as lost, and the 30 s of the manifest
  EXPECT_NE(server_.get("pods", "default", lost)["metadata"].value("deletionTimestamp", ""), "");
  EXPECT_TRUE(contains(out_of({"get", "pods"}), "Terminating"));
  cluster_.remove_node("n1");
  cluster_.settle();
  EXPECT_NE(pod(1), lost);
  EXPECT_EQ(status().value("failed", 0), 0);
  EXPECT_EQ(wait_for("Running").exit_code, 0);
  // The page has the pod that ended because of the loss, its code and its last line.
  const std::string page = out_of({"describe", "rb"});
  EXPECT_TRUE(contains(page, "Earlier attempts:") && contains(page, "lost process 1")) << page;
  succeed();
  EXPECT_EQ(wait_for("Succeeded").exit_code, 0);
}

TEST_F(Faults, BothPodsAtOnceAreOneRestart) {
  apply({"backoff=1"});
  for (const int i : {0, 1}) end(i, 137);
  cluster_.settle();
  EXPECT_EQ(status()["failed"], 2);
  EXPECT_EQ(wait_for("Running").exit_code, 0);
  for (const int i : {0, 1}) end(i, 137, fmt::format("process {} was killed", i));
  cluster_.settle();
  const auto result = wait_for("Succeeded");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(contains(result.err, "has already ended as Failed")) << result.err;
  EXPECT_TRUE(contains(result.err, "Job has reached the specified backoff limit")) << result.err;
  EXPECT_TRUE(contains(result.err, "ended with exit code 137; its last line: process 0 was killed")) << result.err;
}

TEST_F(Faults, AnEvictionDoesNotCount) {
  apply();
  cluster_.evict(pod(1));
  end(0, 75);
  cluster_.settle();
  EXPECT_EQ(status().value("failed", 0), 0);
  succeed();
  EXPECT_EQ(wait_for("Succeeded").exit_code, 0);
  EXPECT_TRUE(contains(out_of({"describe", "rb"}), "Evicted"));
}

TEST_F(Faults, AnExpectationThatFailsIsNotRetried) {
  apply({"backoff=3"});
  end(0, 3, "expected test_accuracy>=0.9, is 0.1");
  cluster_.settle();
  const auto result = wait_for("Succeeded");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(contains(result.err, "matching FailJob rule")) << result.err;
  EXPECT_TRUE(contains(result.err, "expected test_accuracy>=0.9, is 0.1")) << result.err;
}

TEST_F(Faults, AQuotaIsTheReasonUntilItHasRoom) {
  cluster_.set_quota({{"pods", 1}});
  apply();
  EXPECT_EQ(pod(1), "");
  const std::string why = "exceeded quota: compute, requested: pods=1, used: pods=1, limited: pods=1";
  const auto applied = run({"apply", "-f", file()});
  EXPECT_EQ(applied.exit_code, 0);
  EXPECT_TRUE(contains(applied.err, "note: rb waits: ") && contains(applied.err, why)) << applied.err;
  const auto waited = wait_for("Succeeded");
  EXPECT_EQ(waited.exit_code, 1);
  EXPECT_TRUE(contains(waited.err, "timed out")) << waited.err;
  EXPECT_TRUE(contains(out_of({"describe", "rb"}), why));
  RunningProgram follower(words({"logs", "-f", "rb", "--replica", "1"}));
  EXPECT_TRUE(follower.says("note: rb waits: ")) << follower.err();
  cluster_.set_quota(nullptr);
  cluster_.advance(1);
  server_.log("default", pod(1), "step 1");
  succeed();
  const auto followed = follower.wait();
  EXPECT_EQ(followed.out, "step 1\n") << followed.err;
  EXPECT_EQ(wait_for("Succeeded").exit_code, 0);
}

TEST_F(Faults, AQuotaOfCpuLimitsNeedsOne) {
  cluster_.set_quota({{"limits.cpu", "8"}});
  apply();
  EXPECT_TRUE(contains(run({"apply", "-f", file()}).err, "must specify limits.cpu"));
  out_of({"delete", "-f", file()});
  apply({"cpu_limit=2"});
  EXPECT_EQ(cluster_.live_pods("rb").size(), 2u);
}

TEST_F(Faults, RenderedPodsSatisfyTheRestrictedProfile) {
  cluster_.enforce_restricted();
  for (const std::string kind : {"indexed-job", "jaxjob"}) {
    apply({}, kind);
    EXPECT_EQ(cluster_.live_pods("rb").size(), 2u) << kind;
    out_of({"delete", "-f", file()});
  }
  const std::string plain = write("plain.yaml", R"(apiVersion: batch/v1
kind: Job
metadata: {name: rb}
spec:
  completionMode: Indexed
  completions: 2
  parallelism: 2
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: x}]}}
)");
  out_of({"apply", "-f", plain});
  cluster_.settle();
  EXPECT_TRUE(cluster_.live_pods("rb").empty());
  EXPECT_TRUE(contains(run({"apply", "-f", plain}).err, "note: rb waits: Error creating: pods "));
  EXPECT_TRUE(contains(wait_for("Running").err, "violates PodSecurity \"restricted:latest\""));
}

TEST_F(Faults, AJaxJobReplacesReplicasThatWereKilled) {
  apply({"backoff=2", "restart_policy=ExitCode"}, "jaxjob");
  end(1, 137);
  cluster_.settle();
  EXPECT_EQ(cluster_.live_pods("rb").size(), 2u);
  end(0, 1, "error: no such file");
  cluster_.settle();
  const auto result = wait_for("Succeeded");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(contains(result.err, "JAXJob rb is failed because 1 Worker replica(s) failed.")) << result.err;
  EXPECT_TRUE(contains(result.err, "rb-worker-0 ended with exit code 1; its last line: error: no such file"))
      << result.err;
}

TEST_F(Faults, TheRestartsOfAJaxJobAreCertainAndLimited) {
  apply({"backoff=1"}, "jaxjob");
  for (const int i : {0, 1}) end(i, 137);
  cluster_.settle();
  EXPECT_EQ(wait_for("Failed").exit_code, 1);  // not yet: one restart of both is within the limit
  const std::string page = out_of({"describe", "rb"});
  EXPECT_TRUE(contains(page, "Earlier attempts:") && contains(page, "137")) << page;
  end(0, 137);
  cluster_.settle();
  EXPECT_EQ(wait_for("Failed").exit_code, 0);
}

}  // namespace
}  // namespace lockstep
