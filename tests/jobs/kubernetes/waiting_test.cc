// Why a job has no pods: a policy or a quota refuses them, or no node has room.
#include "jobs/kubernetes/cluster.h"

namespace lockstep {
namespace {

constexpr const char* kPolicy =
    "Error creating: pods \"mnist-0-\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true";
constexpr const char* kQuota =
    "Error creating: pods \"mnist-worker-0\" is forbidden: failed quota: compute: must specify limits.cpu";

class Waiting : public KubernetesCluster {};

TEST_F(Waiting, WaitPrintsTheReasonOnce) {
  refuse_pods(make_job("mnist"), "FailedCreate", kPolicy);
  const auto result = run({"wait", "--for=condition=Succeeded", "mnist", "--timeout", "7s"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, fmt::format("lockstep: wait: jobs/mnist does not start: {}\nerror: timed out waiting for the "
                                    "condition on jobs/mnist\n",
                                    kPolicy));
}

TEST_F(Waiting, AJaxJobHasTheEventsOfItsOperator) {
  const Json job = server_.put({{"apiVersion", "kubeflow.org/v1"},
                                {"kind", "JAXJob"},
                                {"metadata", {{"name", "mnist"}}},
                                {"spec", {{"jaxReplicaSpecs", {{"Worker", {{"replicas", 2}}}}}}}});
  refuse_pods(job, "FailedCreatePod", kQuota);
  EXPECT_TRUE(contains(run({"wait", "--for=condition=Succeeded", "mnist", "--timeout", "1s"}).err, kQuota));
}

TEST_F(Waiting, APendingPodTellsWhatTheSchedulerSays) {
  make_job("mnist");
  Json pod = make_pod("mnist", 0, "mnist-0-aaaaa", "Pending", Json::object());
  pod["status"]["conditions"] = Json::array(
      {{{"type", "PodScheduled"}, {"status", "False"}, {"message", "0/3 nodes are available: 3 Insufficient cpu."}}});
  server_.put(pod);
  make_pod("mnist", 1, "mnist-1-aaaaa", "Running", running());
  EXPECT_TRUE(contains(run({"wait", "--for=condition=Succeeded", "mnist", "--timeout", "1s"}).err,
                       "does not start: mnist-0-aaaaa: 0/3 nodes are available: 3 Insufficient cpu.\n"));
}

TEST_F(Waiting, NothingIsPrintedWhenAllPodsRun) {
  refuse_pods(make_job("mnist"), "FailedCreate", kPolicy);  // a quota that has room again
  for (const int i : {0, 1}) make_pod("mnist", i, fmt::format("mnist-{}-aaaaa", i), "Running", running());
  EXPECT_FALSE(contains(run({"wait", "--for=condition=Succeeded", "mnist", "--timeout", "1s"}).err, "does not start"));
}

// A pod was created after the event; another one is being replaced.
TEST_F(Waiting, AnOldEventIsNotTheReason) {
  refuse_pods(make_job("mnist"), "FailedCreate", kPolicy);
  make_pod("mnist", 0, "mnist-0-aaaaa", "Running", running(), true, "2026-01-01T00:00:03Z");
  EXPECT_FALSE(contains(run({"wait", "--for=condition=Succeeded", "mnist", "--timeout", "1s"}).err, "does not start"));
}

TEST_F(Waiting, FollowedLogsPrintTheReasonAndGoOn) {
  refuse_pods(make_job("mnist"), "FailedCreate", kPolicy);
  RunningProgram program(words({"logs", "-f", "mnist"}));
  EXPECT_TRUE(program.says("note: mnist waits: " + std::string(kPolicy))) << program.err();
  make_pod("mnist", 0, "mnist-0-aaaaa", "Succeeded", ended(0, "Completed"));
  server_.log("default", "mnist-0-aaaaa", "trained");
  const auto result = program.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "trained\n");
}

TEST_F(Waiting, ApplyPrintsTheReason) {
  const std::string file = dir_.path() + "/job.yaml";
  ASSERT_EQ(run_lockstep({"render", "kubernetes", "--set", "name=mnist", "-o", file}).exit_code, 0);
  EXPECT_FALSE(contains(run({"apply", "-f", file}).err, "waits"));
  refuse_pods(server_.get("jobs", "default", "mnist"), "FailedCreate", kPolicy);
  const auto result = run({"apply", "-f", file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(contains(result.err, "note: mnist waits: " + std::string(kPolicy))) << result.err;
}

}  // namespace
}  // namespace lockstep
