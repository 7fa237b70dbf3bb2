// Commands that read the logs of many pods ask the API server once for each log, through one kubectl.
#include <algorithm>

#include "jobs/kubernetes/cluster.h"

namespace lockstep {
namespace {

constexpr int kPods = 60;

class ManyPods : public KubernetesCluster {
 protected:
  void SetUp() override {
    KubernetesCluster::SetUp();
    Json job = make_job("myjob", {{"succeeded", kPods}});
    job["spec"]["completions"] = job["spec"]["parallelism"] = kPods;
    server_.put(job);
    for (int i = 0; i < kPods; ++i) {
      make_pod("myjob", i, pod(i), "Succeeded", ended(0, "Completed"));
      server_.log("default", pod(i), "first line");
      server_.log("default", pod(i), fmt::format("last line of {}", i));
    }
  }

  static std::string pod(int index) { return fmt::format("myjob-{}-aaaaa", index); }

  // Checks that the last command listed the pods a few times, and not once for each pod.
  void expect_few_lists() const {
    const std::vector<std::string> all = server_.requests();
    EXPECT_LE(std::ranges::count(all, "GET /api/v1/namespaces/default/pods"), 5);
    for (int i = 0; i < kPods; ++i)
      EXPECT_EQ(std::ranges::count(all, fmt::format("GET /api/v1/namespaces/default/pods/{}/log", pod(i))), 1) << i;
  }
};

TEST_F(ManyPods, DescribeShowsTheLastLineOfEach) {
  const std::string page = out_of({"describe", "myjob"});
  for (int i = 0; i < kPods; ++i) EXPECT_TRUE(contains(page, fmt::format("last line of {}\n", i))) << page;
  EXPECT_FALSE(contains(page, "first line"));
  expect_few_lists();
}

TEST_F(ManyPods, LogsPrintsAllLinesInOrder) {
  std::string wanted;
  for (int i = 0; i < kPods; ++i) wanted += fmt::format("[myjob-{0}] first line\n[myjob-{0}] last line of {0}\n", i);
  EXPECT_EQ(out_of({"logs", "myjob", "--all-replicas"}), wanted);
  expect_few_lists();
}

TEST_F(ManyPods, RefusedLogsAreReportedForEach) {
  server_.forbid("get", "pods/log");
  const auto refused = run({"logs", "myjob", "--all-replicas"});
  EXPECT_EQ(refused.exit_code, 1);
  for (int i = 0; i < kPods; ++i)
    EXPECT_TRUE(contains(refused.err, fmt::format("lockstep: myjob-{0}: kubectl logs: pods \"myjob-{0}-aaaaa\" is "
                                                  "forbidden: ",
                                                  i)))
        << refused.err;
}

}  // namespace
}  // namespace lockstep
