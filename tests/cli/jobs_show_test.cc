// Output of `get` and `describe` for jobs and replicas.
#include <gtest/gtest.h>

#include "jobs/show.h"

namespace lockstep {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

const JobTime kCreated{seconds(1734540448)};  // 2024-12-18T16:47:28Z
const JobTime kNow = kCreated + minutes(108);

Job mnist() {
  Job job;
  job.name = "jaxjob-mnist";
  job.namespace_name = "kubeflow";
  job.uid = "15f1db77";
  job.created = kCreated;
  job.spec.replicas = 2;
  job.spec.restart = RestartPolicy::on_failure;
  job.spec.container.image = "example/mnist:latest";
  job.status.conditions = {
      {"Created", true, "JAXJobCreated", "JAXJob jaxjob-mnist is created.", kCreated, kCreated},
      {"Running", true, "JAXJobRunning", "JAXJob kubeflow/jaxjob-mnist is running.", kCreated, kCreated}};
  job.status.started = kCreated;
  job.status.active = 2;
  return job;
}

Pod running(int index) {
  Pod pod;
  pod.index = index;
  pod.phase = PodPhase::running;
  pod.started = kCreated;
  pod.node = "laptop";
  pod.process = 4100 + index;
  return pod;
}

Pod failed(int index, int code) {
  Pod pod = running(index);
  pod.phase = PodPhase::failed;
  pod.exit_code = code;
  pod.process = 0;
  pod.ended = kCreated + seconds(5);
  return pod;
}

TEST(JobShow, JobsHaveNameStateAndAge) {
  EXPECT_EQ(job_header({}), (TableRow{"NAME", "STATE", "AGE"}));
  EXPECT_EQ(job_row(mnist(), {}, kNow), (TableRow{"jaxjob-mnist", "Running", "108m"}));
  EXPECT_EQ(job_header({true, true}),
            (TableRow{"NAMESPACE", "NAME", "STATE", "AGE", "REPLICAS", "RESTARTS", "MESSAGE"}));
  EXPECT_EQ(job_row(mnist(), {true, true}, kNow), (TableRow{"kubeflow", "jaxjob-mnist", "Running", "108m", "2", "0",
                                                            "JAXJob kubeflow/jaxjob-mnist is running."}));
  Job fresh = mnist();
  fresh.status = {};
  EXPECT_EQ(job_row(fresh, {true, false}, kNow).back(), "<none>");
}

TEST(JobShow, PodsHaveKubectlsColumns) {
  const Job job = mnist();
  EXPECT_EQ(pod_header({}), (TableRow{"NAME", "READY", "STATUS", "RESTARTS", "AGE"}));
  EXPECT_EQ(pod_row(job, running(0), {}, kNow), (TableRow{"jaxjob-mnist-worker-0", "1/1", "Running", "0", "108m"}));
  Pod done = running(1);
  done.phase = PodPhase::succeeded;
  done.exit_code = 0;
  EXPECT_EQ(pod_row(job, done, {}, kNow), (TableRow{"jaxjob-mnist-worker-1", "0/1", "Completed", "0", "108m"}));
  EXPECT_EQ(pod_row(job, failed(1, 1), {}, kNow), (TableRow{"jaxjob-mnist-worker-1", "0/1", "Error", "0", "108m"}));
  Pod waiting;
  waiting.index = 1;
  EXPECT_EQ(pod_row(job, waiting, {}, kNow), (TableRow{"jaxjob-mnist-worker-1", "0/1", "Pending", "0", "108m"}));
}

TEST(JobShow, WidePodsShowNodeAndExitCode) {
  const Job job = mnist();
  EXPECT_EQ(pod_header({true, true}),
            (TableRow{"NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "NODE", "PID", "EXIT CODE"}));
  EXPECT_EQ(pod_row(job, running(0), {true, true}, kNow),
            (TableRow{"kubeflow", "jaxjob-mnist-worker-0", "1/1", "Running", "0", "108m", "laptop", "4100", "<none>"}));
  Pod killed = failed(0, 137);
  killed.reason = "OOMKilled";
  killed.node = "";
  EXPECT_EQ(pod_row(job, killed, {true, false}, kNow),
            (TableRow{"jaxjob-mnist-worker-0", "0/1", "OOMKilled", "0", "108m", "<none>", "<none>", "137"}));
}

TEST(JobShow, RestartsShowTheTimeOfTheLastOne) {
  Pod pod = running(0);
  pod.attempt = 2;
  pod.started = kNow - seconds(12);
  EXPECT_EQ(pod_row(mnist(), pod, {}, kNow),
            (TableRow{"jaxjob-mnist-worker-0", "1/1", "Running", "2 (12s ago)", "12s"}));
}

TEST(JobShow, FingerprintsIgnoreAges) {
  const Job job = mnist();
  EXPECT_EQ(pod_row_key(job, running(0)), pod_row_key(job, running(0)));
  EXPECT_NE(pod_row_key(job, running(0)), pod_row_key(job, failed(0, 1)));
  EXPECT_NE(pod_row_key(job, failed(0, 2)), pod_row_key(job, failed(0, 1)));
  Pod again = running(0);
  again.attempt = 1;
  EXPECT_NE(pod_row_key(job, running(0)), pod_row_key(job, again));
  Job done = job;
  done.status.conditions.push_back({"Succeeded", true, "JAXJobSucceeded", "", kNow, kNow});
  EXPECT_NE(job_row_key(job), job_row_key(done));
  Job other = job;
  other.uid = "another";
  EXPECT_NE(job_row_key(job), job_row_key(other));
}

TEST(JobShow, NamesAreThoseOfKubectl) {
  Job job = mnist();
  EXPECT_EQ(full_name(job), "jaxjob.kubeflow.org/jaxjob-mnist");
  EXPECT_EQ(short_name(job), "jaxjobs/jaxjob-mnist");
  EXPECT_EQ(name_of(job.kind), "JAXJob");
  job.kind = JobKind::indexed_job;
  EXPECT_EQ(full_name(job), "job.batch/jaxjob-mnist");
  EXPECT_EQ(short_name(job), "jobs/jaxjob-mnist");
  EXPECT_EQ(name_of(job.kind), "Job");
}

TEST(JobShow, EventsShowReasonAndObject) {
  const JobEvent event = {kNow - seconds(30), true, "pod/jaxjob-mnist-worker-1", "Failed", "exit code 1"};
  EXPECT_EQ(event_header({false, true}), (TableRow{"NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"}));
  EXPECT_EQ(event_row(mnist(), event, {}, kNow),
            (TableRow{"30s", "Warning", "Failed", "pod/jaxjob-mnist-worker-1", "exit code 1"}));
}

TEST(JobShow, PodObjectsLookLikeThoseOfKubernetes) {
  const nlohmann::ordered_json pod = pod_object(mnist(), failed(1, 137));
  EXPECT_EQ(pod["kind"], "Pod");
  EXPECT_EQ(pod["metadata"]["name"], "jaxjob-mnist-worker-1");
  EXPECT_EQ(pod["metadata"]["namespace"], "kubeflow");
  EXPECT_EQ(pod["metadata"]["labels"]["training.kubeflow.org/replica-index"], "1");
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["kind"], "JAXJob");
  EXPECT_EQ(pod["spec"]["nodeName"], "laptop");
  EXPECT_EQ(pod["spec"]["containers"][0]["image"], "example/mnist:latest");
  EXPECT_EQ(pod["status"]["phase"], "Failed");
  const auto& ended = pod["status"]["containerStatuses"][0]["state"]["terminated"];
  EXPECT_EQ(ended["exitCode"], 137);
  EXPECT_EQ(ended["reason"], "Error");
  EXPECT_EQ(ended["finishedAt"], "2024-12-18T16:47:33Z");
  EXPECT_EQ(pod_object(mnist(), running(0))["status"]["containerStatuses"][0]["state"]["running"]["startedAt"],
            "2024-12-18T16:47:28Z");
  EXPECT_TRUE(pod_object(mnist(), {})["status"]["containerStatuses"][0]["state"].contains("waiting"));
  EXPECT_EQ(list_object({pod, pod})["items"].size(), 2u);
}

TEST(JobShow, DescriptionHoldsSpecStatusPodsAndEvents) {
  Job job = mnist();
  job.labels = {{"team", "vision"}};
  job.spec.container.command = {"lockstep", "train", "--expect", "test_accuracy>=0.9"};
  job.spec.container.env = {{"A", "b c"}, {"ME", ""}};
  job.spec.container.env_fields = {{"ME", "metadata.name"}};
  job.folder = "/home/me";
  job.spec.backoff_limit = 3;
  const std::string text =
      describe_job(job, {{running(0), "step 200  loss 0.5"}, {failed(1, 1), ""}},
                   {{kNow - seconds(30), false, "jaxjob/jaxjob-mnist", "JAXJobCreated", "created"}}, kNow);
  EXPECT_EQ(text,
            "Name:                 jaxjob-mnist\n"
            "Namespace:            kubeflow\n"
            "Kind:                 JAXJob\n"
            "State:                Running\n"
            "Labels:               team=vision\n"
            "UID:                  15f1db77\n"
            "Created:              2024-12-18T16:47:28Z (108m ago)\n"
            "Spec:\n"
            "  Replicas:           2\n"
            "  Restart policy:     OnFailure\n"
            "  Clean pod policy:   None\n"
            "  Backoff limit:      3\n"
            "  Active deadline:    <none>\n"
            "  TTL after finished: <none>\n"
            "  Suspend:            false\n"
            "Container:\n"
            "  Image:              example/mnist:latest\n"
            "  Command:            lockstep train --expect 'test_accuracy>=0.9'\n"
            "  Working dir:        /home/me\n"
            "  Port:               6666\n"
            "  Environment:        A=b c\n"
            "                      ME (metadata.name)\n"
            "Status:\n"
            "  Replicas:           2 active, 0 succeeded, 0 failed\n"
            "  Restarts:           0\n"
            "  Started:            2024-12-18T16:47:28Z (108m ago)\n"
            "  Completed:          <none>\n"
            "Conditions:\n"
            "  TYPE      STATUS   REASON          AGE    MESSAGE\n"
            "  Created   True     JAXJobCreated   108m   JAXJob jaxjob-mnist is created.\n"
            "  Running   True     JAXJobRunning   108m   JAXJob kubeflow/jaxjob-mnist is running.\n"
            "Pods:\n"
            "  NAME                    STATUS    EXIT CODE   RESTARTS   NODE     PID      LAST LINE\n"
            "  jaxjob-mnist-worker-0   Running   <none>      0          laptop   4100     step 200  loss 0.5\n"
            "  jaxjob-mnist-worker-1   Error     1           0          laptop   <none>   <none>\n"
            "Events:\n"
            "  TYPE     REASON          AGE   OBJECT                MESSAGE\n"
            "  Normal   JAXJobCreated   30s   jaxjob/jaxjob-mnist   created\n");
  EXPECT_NE(describe_job(mnist(), {}, {}, kNow).find("Events:               <none>\n"), std::string::npos);
  EXPECT_NE(describe_job(mnist(), {}, {}, kNow).find("  Command:            lockstep train\n"), std::string::npos);
}

TEST(JobShow, DescriptionOfAPodHoldsItsOwnEvents) {
  const std::vector<JobEvent> events = {{kNow, false, "pod/jaxjob-mnist-worker-0", "Started", "pid 4100"},
                                        {kNow, true, "pod/jaxjob-mnist-worker-1", "Failed", "exit code 3"}};
  const std::string text = describe_pod(mnist(), {failed(1, 3), "expected test_accuracy>=0.9"}, events, kNow);
  for (const char* part :
       {"Name:                 jaxjob-mnist-worker-1\n", "Controlled by:        JAXJob/jaxjob-mnist\n",
        "Status:               Error\n", "Exit code:            3\n", "Node:                 laptop\n",
        "Last line:            expected test_accuracy>=0.9\n", "training.kubeflow.org/replica-index=1\n",
        "Warning   Failed"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("Started   "), std::string::npos) << text;
}

TEST(JobShow, WaitFailsWhenTheJobHasEndedOtherwise) {
  Job job = mnist();
  EXPECT_EQ(check_condition(job, "Running", true), ConditionResult::met);
  EXPECT_EQ(check_condition(job, "Succeeded", true), ConditionResult::not_yet);
  EXPECT_EQ(check_condition(job, "Running", false), ConditionResult::not_yet);
  job.status.conditions[1].status = false;
  job.status.conditions.push_back({"Failed", true, "JAXJobFailed", "it failed", kNow, kNow});
  EXPECT_EQ(check_condition(job, "Succeeded", true), ConditionResult::never);
  EXPECT_EQ(check_condition(job, "Failed", true), ConditionResult::met);
  EXPECT_EQ(check_condition(job, "Running", false), ConditionResult::met);
  EXPECT_EQ(check_condition(job, "Suspended", true), ConditionResult::never);
  job.status.conditions.erase(job.status.conditions.begin() + 1);  // never observed while running
  EXPECT_EQ(check_condition(job, "Running", true), ConditionResult::never);
  EXPECT_EQ(check_condition(job, "Running", false), ConditionResult::met);
}

}  // namespace
}  // namespace lockstep
