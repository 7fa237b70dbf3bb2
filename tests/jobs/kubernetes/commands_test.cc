// Job commands on a cluster: names, objects of other kinds, and an API server that does not answer.
#include <filesystem>

#include "jobs/kubernetes/cluster.h"
#include "jobs/model/yaml_document.h"

namespace lockstep {
namespace {

class Commands : public KubernetesCluster {};

TEST_F(Commands, AJobMayHaveTheNameOfAResource) {
  make_job("ev");
  EXPECT_EQ(out_of({"get", "job", "ev", "-o", "name"}), "job.batch/ev\n");
  EXPECT_EQ(out_of({"get", "job/ev", "-o", "name"}), "job.batch/ev\n");
  const auto result = run({"get", "jobs", "pods"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(contains(result.err, "separate resources with commas, such as `lockstep get jobs,pods`")) << result.err;
}

TEST_F(Commands, ListsAreThoseOfKubectl) {
  make_job("one");
  make_job("two");
  for (const char* format : {"yaml", "json"})
    EXPECT_EQ(out_of({"get", "jobs.batch", "-o", format}), kubectl({"get", "jobs.batch", "-o", format}).out);
}

TEST_F(Commands, AJobSetIsNamedAsSuch) {
  server_.put({{"apiVersion", "jobset.x-k8s.io/v1alpha2"}, {"kind", "JobSet"}, {"metadata", {{"name", "xs"}}}});
  for (const Words& words : {Words{"describe", "xs"}, Words{"wait", "xs", "--for=condition=Succeeded"}}) {
    const auto result = run(words);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(contains(result.err,
                         "job xs: it is a JobSet, which only kubectl shows; use its Job instead (`lockstep get jobs -n "
                         "default -l jobset.sigs.k8s.io/jobset-name=xs`), or `kubectl describe "
                         "jobsets.jobset.x-k8s.io xs -n default`\n"))
        << result.err;
  }
  EXPECT_TRUE(contains(run({"describe", "xy"}).err, "job xy: not found in namespace default; it has no jobs"));
}

TEST_F(Commands, WithoutAClusterARetryDoesNotHelp) {
  std::filesystem::remove(config_);
  const auto result = run({"get", "jobs"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(contains(result.err, "kubectl knows no cluster: set KUBECONFIG to the file of yours")) << result.err;
}

TEST_F(Commands, AWrongNameOfASubmittedJobIsTheNameOfTheFlag) {
  const auto result = run({"submit", "--kind", "jaxjob", "--name", "BAD", "--", "train"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(contains(result.err, "submit: name is \"BAD\"; use ")) << result.err;
}

// Commands that watch start also while the API server restarts.
TEST_F(Commands, WatchesWaitForTheServer) {
  make_job("myjob", {{"active", 1}, {"startTime", "2026-01-01T00:00:05Z"}});
  make_pod("myjob", 0, "myjob-0-aaaaa", "Succeeded", ended(0, "Completed"));
  server_.log("default", "myjob-0-aaaaa", "hello");
  server_.stop();
  RunningProgram watch(words({"get", "jobs", "-w", "--timeout", "20s"})),
      events(words({"events", "-w", "--timeout", "20s"})), logs(words({"logs", "-f", "myjob"})),
      all(words({"logs", "-f", "myjob", "--all-replicas"}));
  for (RunningProgram* each : {&watch, &events, &logs, &all}) EXPECT_TRUE(each->says("; retrying\n")) << each->err();
  server_.start();
  EXPECT_EQ(logs.wait().out, "hello\n");
  EXPECT_EQ(all.wait().out, "[myjob-0] hello\n");
  const auto watched = watch.wait();
  EXPECT_EQ(watched.exit_code, 0) << watched.err;
  EXPECT_TRUE(contains(watched.out, "myjob")) << watched.err;
  EXPECT_EQ(events.wait().exit_code, 0);
}

// The job prints the code of a container that was restarted in its pod.
TEST_F(Commands, DescribeShowsTheAttemptBeforeARestart) {
  make_job("myjob", {{"active", 1}, {"startTime", "2026-01-01T00:00:05Z"}});
  Json pod = make_pod("myjob", 0, "myjob-0-aaaaa", "Running", running());
  Json& container = pod["status"]["containerStatuses"][0];
  container["restartCount"] = 1;
  container["lastState"] = ended(137, "OOMKilled");
  server_.put(pod);
  make_pod("myjob", 1, "myjob-1-aaaaa", "Failed", ended(9, "Error"));
  make_pod("myjob", 1, "myjob-1-bbbbb", "Running", running(), true, "2026-01-01T00:01:10Z");
  server_.log("default", "myjob-1-aaaaa", "out of disk");
  const std::string page = out_of({"describe", "myjob"}), earlier = page.substr(page.find("Earlier attempts:"));
  EXPECT_TRUE(contains(earlier, "OOMKilled   137")) << page;
  EXPECT_TRUE(contains(earlier, "myjob-1-aaaaa") && contains(earlier, "out of disk")) << page;
  EXPECT_FALSE(contains(earlier, "myjob-1-bbbbb")) << page;
}

}  // namespace
}  // namespace lockstep
