// Job commands on a cluster: the states they show, the names they accept and the permissions they need.
#include <algorithm>
#include <set>
#include <sstream>

#include "jobs/kubernetes/cluster.h"
#include "jobs/model/yaml_document.h"

namespace lockstep {
namespace {

class States : public KubernetesCluster {
 protected:
  // Rows of a table without its header, each cut to this number of words.
  static std::vector<Words> rows(const std::string& table, size_t words) {
    std::vector<Words> out;
    std::istringstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream in(line);
      Words row;
      for (std::string word; row.size() < words && in >> word;) row.push_back(word);
      out.push_back(row);
    }
    if (!out.empty()) out.erase(out.begin());
    return out;
  }
};

TEST_F(States, PodsHaveTheStatusThatKubectlShows) {
  make_job("myjob", {{"active", 2}, {"startTime", "2026-01-01T00:00:05Z"}});
  make_pod("myjob", 0, "myjob-0-aaaaa", "Pending", waiting("ImagePullBackOff"));
  EXPECT_EQ(
      rows(out_of({"get", "pods"}), 4),
      (std::vector<Words>{{"myjob-0-aaaaa", "0/1", "ImagePullBackOff", "0"}}));  // the other pod does not exist yet
  EXPECT_EQ(rows(out_of({"get", "jobs"}), 2), (std::vector<Words>{{"myjob", "Created"}}));
  const auto waited = run({"wait", "myjob", "--for=condition=Running", "--timeout", "0s"});
  EXPECT_EQ(waited.exit_code, 1);
  EXPECT_TRUE(contains(waited.err, "timed out waiting for the condition on jobs/myjob")) << waited.err;

  make_pod("myjob", 0, "myjob-0-aaaaa", "Running", running(), false);
  make_pod("myjob", 1, "myjob-1-bbbbb", "Running", running(), true);
  EXPECT_EQ(rows(out_of({"get", "pods"}), 3),
            (std::vector<Words>{{"myjob-0-aaaaa", "0/1", "Running"}, {"myjob-1-bbbbb", "1/1", "Running"}}));
  EXPECT_EQ(out_of({"wait", "myjob", "--for=condition=Running", "--timeout", "0s"}), "job.batch/myjob condition met\n");
}

TEST_F(States, RestartsAreCountedAndReplacedPodsStayAccessible) {
  const Json job = make_job("myjob", {{"active", 2}, {"startTime", "2026-01-01T00:00:05Z"}, {"completedIndexes", "1"}});
  make_pod("myjob", 0, "myjob-0-aaaaa", "Failed", ended(137, "OOMKilled"));
  make_pod("myjob", 0, "myjob-0-bbbbb", "Running", running(), true, "2026-01-01T00:01:10Z");
  server_.log("default", "myjob-0-aaaaa", "first");
  server_.log("default", "myjob-0-bbbbb", "second");
  const std::vector<Words> wide = rows(out_of({"get", "jobs", "-o", "wide"}), 5);
  ASSERT_TRUE(wide.size() == 1 && wide[0].size() == 5);
  EXPECT_EQ(wide[0][1], "Running");
  EXPECT_EQ(wide[0][4], "1");  // RESTARTS
  EXPECT_EQ(rows(out_of({"get", "pods"}), 3), (std::vector<Words>{{"myjob-0-bbbbb", "1/1", "Running"}}));
  EXPECT_EQ(out_of({"logs", "pod/myjob-0-aaaaa"}), "first\n");
  EXPECT_EQ(out_of({"logs", "myjob-0-bbbbb"}), "second\n");
  EXPECT_EQ(out_of({"logs", "myjob-0"}), "second\n");
  EXPECT_EQ(out_of({"logs", "myjob"}), "second\n");
  const std::string page = out_of({"describe", "pod/myjob-0-aaaaa"});
  EXPECT_TRUE(contains(page, "OOMKilled") && contains(page, "first") && contains(page, "myjob-0-aaaaa")) << page;
  EXPECT_EQ(rows(out_of({"get", "pod", "myjob-0-aaaaa"}), 3),
            (std::vector<Words>{{"myjob-0-aaaaa", "0/1", "OOMKilled"}}));
  // The objects are those of the server.
  const Json shown = parse_yaml_documents(out_of({"get", "job/myjob", "-o", "yaml"}), "shown").at(0).value;
  EXPECT_EQ(nlohmann::json(shown), nlohmann::json(job));
  EXPECT_TRUE(contains(out_of({"get", "pod/myjob-0-aaaaa", "-o", "yaml"}), "imageID: \"\""));
}

TEST_F(States, EventsOfOtherJobsAreExcluded) {
  const Json job = make_job("myjob");
  const Json pod = make_pod("myjob", 0, "myjob-0-bbbbb", "Running", running());
  auto event = [&, number = 0](const std::string& reason, const Json& about, const std::string& time) mutable {
    server_.put({{"apiVersion", "v1"},
                 {"kind", "Event"},
                 {"metadata", {{"name", fmt::format("e{}", ++number)}, {"namespace", "default"}}},
                 {"involvedObject", about},
                 {"reason", reason},
                 {"message", "m"},
                 {"type", "Normal"},
                 {"lastTimestamp", time}});
  };
  const std::string after = "2026-01-01T00:00:09Z", before = "2025-12-31T00:00:00Z";
  event("Own", {{"kind", "Job"}, {"name", "myjob"}, {"uid", job["metadata"]["uid"]}}, after);
  event("OfItsPod", {{"kind", "Pod"}, {"name", "myjob-0-bbbbb"}, {"uid", pod["metadata"]["uid"]}}, after);
  event("OfAReplacedPod", {{"kind", "Pod"}, {"name", "myjob-0-aaaaa"}, {"uid", "gone"}}, after);
  event("OfAnEarlierJob", {{"kind", "Job"}, {"name", "myjob"}, {"uid", "earlier"}}, after);
  event("OfItsPods", {{"kind", "Pod"}, {"name", "myjob-0-ccccc"}, {"uid", "earlier"}}, before);
  event("OfAnother", {{"kind", "Pod"}, {"name", "myjob-0-1-ddddd"}, {"uid", "other"}}, after);
  std::set<std::string> reasons;
  for (const Words& row : rows(out_of({"events", "myjob"}), 3)) reasons.insert(row[2]);
  EXPECT_EQ(reasons, (std::set<std::string>{"Own", "OfItsPod", "OfAReplacedPod"}));
}

TEST_F(States, AJobAndAJaxJobMayHaveTheSameName) {
  make_job("rb");
  Json jax = {{"apiVersion", "kubeflow.org/v1"}, {"kind", "JAXJob"}, {"metadata", {{"name", "rb"}}}};
  jax["spec"]["jaxReplicaSpecs"]["Worker"] = {{"replicas", 1}};
  server_.put(jax);
  const auto either = run({"delete", "rb"});
  EXPECT_EQ(either.exit_code, 1);
  EXPECT_TRUE(contains(either.err,
                       "namespace default has a JAXJob and a Job named rb; use jaxjob/rb or "
                       "job.batch/rb"))
      << either.err;
  EXPECT_EQ(out_of({"delete", "job.batch/rb"}), "job.batch \"rb\" deleted from default namespace\n");
  EXPECT_FALSE(server_.get("jaxjobs", "default", "rb").is_null());
  EXPECT_EQ(out_of({"delete", "jaxjob/rb"}), "jaxjob.kubeflow.org \"rb\" deleted from default namespace\n");
}

TEST_F(States, PermissionForJobsIsEnoughForIndexedJobs) {
  for (const char* verb : {"get", "list"}) server_.forbid(verb, "jaxjobs");
  make_job("myjob", {{"active", 1}, {"startTime", "2026-01-01T00:00:05Z"}});
  make_pod("myjob", 0, "myjob-0-aaaaa", "Running", running(), true);
  server_.log("default", "myjob-0-aaaaa", "hello");
  const auto typed = run({"get", "jobs.batch"});
  EXPECT_EQ(typed.exit_code, 0) << typed.err;
  EXPECT_EQ(typed.err, "");
  EXPECT_EQ(out_of({"logs", "myjob"}), "hello\n");
  const auto all = run({"get", "jobs"});
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_EQ(rows(all.out, 1), (std::vector<Words>{{"myjob"}}));
  EXPECT_TRUE(contains(all.err, "note: kubectl get: ") && contains(all.err, "jaxjobs.kubeflow.org is forbidden"))
      << all.err;
  EXPECT_EQ(run({"get", "jaxjobs"}).exit_code, 1);
  const auto missing = run({"describe", "nothing"});
  EXPECT_TRUE(contains(missing.err, "job nothing: not found in namespace default; existing jobs: myjob"))
      << missing.err;
  EXPECT_EQ(out_of({"delete", "myjob"}), "job.batch \"myjob\" deleted from default namespace\n");
}

TEST_F(States, DescribeShowsTheSourceOfTheToken) {
  Json job = make_job("myjob");
  job["spec"]["template"]["spec"]["containers"][0]["env"] =
      Json::array({{{"name", "LOCKSTEP_TOKEN"}, {"valueFrom", {{"secretKeyRef", {{"name", "s"}, {"key", "token"}}}}}},
                   {{"name", "A"}, {"value", "1"}}});
  server_.put(job);
  const std::string page = out_of({"describe", "myjob"});
  EXPECT_TRUE(contains(page, "LOCKSTEP_TOKEN (key token of Secret s)\n")) << page;
  EXPECT_TRUE(contains(page, "A=1\n")) << page;
  EXPECT_TRUE(contains(page, "<image default>\n")) << page;
}

TEST_F(States, WaitReportsTheLastLineOfAFailedJob) {
  make_job("myjob", {{"failed", 1},
                     {"conditions", {{{"type", "Failed"}, {"status", "True"}, {"message", "backoff limit reached"}}}}});
  make_pod("myjob", 0, "myjob-0-aaaaa", "Failed", ended(75, "Error"));
  make_pod("myjob", 1, "myjob-1-bbbbb", "Failed", ended(3, "Error"));
  server_.log("default", "myjob-1-bbbbb", "expected test_accuracy>=0.9, is 0.1933");
  const auto result = run({"wait", "myjob", "--for=condition=Succeeded"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(contains(result.err,
                       "myjob-1-bbbbb ended with exit code 3; its last line: expected test_accuracy>=0.9, "
                       "is 0.1933\n"))
      << result.err;
}

TEST_F(States, WaitSurvivesARestartOfTheServer) {
  make_job("myjob", {{"active", 1}, {"startTime", "2026-01-01T00:00:05Z"}});
  RunningProgram program(words({"wait", "myjob", "--for=condition=Succeeded", "--timeout", "60s"}));
  const auto asked = [&] {
    const auto all = server_.requests();
    return std::ranges::count(all, "GET /apis/batch/v1/namespaces/default/jobs") > 1;
  };
  EXPECT_TRUE(comes_true(asked));
  server_.stop();
  EXPECT_TRUE(program.says("; retrying\n"));
  Json job = server_.get("jobs", "default", "myjob");
  job["status"] = {{"succeeded", 2}, {"conditions", {{{"type", "Complete"}, {"status", "True"}}}}};
  server_.put(job);
  server_.start();
  const auto result = program.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(contains(result.err, "reachable again after ")) << result.err;
}

TEST_F(States, AnUnreachableServerHasItsOwnExitCode) {
  make_job("myjob");
  server_.stop();
  const auto result = run({"wait", "myjob", "--for=condition=Succeeded", "--timeout", "1s"});
  EXPECT_EQ(result.exit_code, 75) << result.err;
  EXPECT_TRUE(contains(result.err, "; gave up after ")) << result.err;
  EXPECT_TRUE(contains(result.err, "; check the cluster with `kubectl config current-context`")) << result.err;
}

TEST_F(States, AFollowedLogSurvivesARestartOfTheServer) {
  make_job("myjob", {{"active", 1}, {"startTime", "2026-01-01T00:00:05Z"}});
  const Json pod = make_pod("myjob", 0, "myjob-0-aaaaa", "Running", running(), true);
  for (const char* line : {"one", "two", "three"}) server_.log("default", "myjob-0-aaaaa", line);
  RunningProgram program(words({"logs", "-f", "myjob"}));
  EXPECT_TRUE(comes_true([&] { return server_.followers() == 1; }));
  server_.stop();
  EXPECT_TRUE(program.says("lost the connection to the API server; retrying\n"));
  server_.log("default", "myjob-0-aaaaa", "four");
  Json over = pod;
  over["status"]["phase"] = "Succeeded";
  over["status"]["containerStatuses"][0]["state"] = ended(0, "Completed");
  server_.put(over);
  server_.start();
  const auto result = program.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "one\ntwo\nthree\nfour\n");
}

}  // namespace
}  // namespace lockstep
