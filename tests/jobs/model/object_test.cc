#include "jobs/model/object.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "jobs/model/manifest.h"
#include "jobs/model/reconcile.h"
#include "jobs/model/state_text.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kApplied = R"(apiVersion: "kubeflow.org/v1"
kind: JAXJob
metadata:
  name: jaxjob-mnist
  namespace: kubeflow
spec:
  jaxReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: jax
              image: docker.io/sandipanify/jaxjob-spmd-mnist:latest
              imagePullPolicy: Always
)";

// The output of `kubectl get -o yaml jaxjobs jaxjob-mnist -n kubeflow` for it on a cluster.
constexpr const char* kShown = R"(apiVersion: kubeflow.org/v1
kind: JAXJob
metadata:
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: |
      {"apiVersion":"kubeflow.org/v1","kind":"JAXJob","metadata":{"annotations":{},"name":"jaxjob-mnist","namespace":"kubeflow"},"spec":{"jaxReplicaSpecs":{"Worker":{"replicas":2,"restartPolicy":"OnFailure","template":{"spec":{"containers":[{"image":"docker.io/sandipanify/jaxjob-spmd-mnist:latest","imagePullPolicy":"Always","name":"jax"}]}}}}}}
  creationTimestamp: "2024-12-18T16:47:28Z"
  generation: 1
  name: jaxjob-mnist
  namespace: kubeflow
  resourceVersion: "3620"
  uid: 15f1db77-3326-405d-95e6-3d9a0d581611
spec:
  jaxReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          containers:
          - image: docker.io/sandipanify/jaxjob-spmd-mnist:latest
            imagePullPolicy: Always
            name: jax
status:
  completionTime: "2024-12-18T17:22:11Z"
  conditions:
  - lastTransitionTime: "2024-12-18T16:47:28Z"
    lastUpdateTime: "2024-12-18T16:47:28Z"
    message: JAXJob jaxjob-mnist is created.
    reason: JAXJobCreated
    status: "True"
    type: Created
  - lastTransitionTime: "2024-12-18T16:50:57Z"
    lastUpdateTime: "2024-12-18T16:50:57Z"
    message: JAXJob kubeflow/jaxjob-mnist is running.
    reason: JAXJobRunning
    status: "False"
    type: Running
  - lastTransitionTime: "2024-12-18T17:22:11Z"
    lastUpdateTime: "2024-12-18T17:22:11Z"
    message: JAXJob kubeflow/jaxjob-mnist successfully completed.
    reason: JAXJobSucceeded
    status: "True"
    type: Succeeded
  replicaStatuses:
    Worker:
      selector: training.kubeflow.org/job-name=jaxjob-mnist,training.kubeflow.org/operator-name=jaxjob-controller,training.kubeflow.org/replica-type=worker
      succeeded: 2
  startTime: "2024-12-18T16:47:28Z"
)";

// The same history as on the cluster: created, running after three minutes, finished after half an hour.
Job finished_job() {
  Job job = parse_manifests(kApplied, "job.yaml").jobs.at(0);
  job.uid = "15f1db77-3326-405d-95e6-3d9a0d581611";
  job.created = parse_time("2024-12-18T16:47:28Z");
  reconcile(job, {}, job.created);
  reconcile(job, pods_of("R R", 0), parse_time("2024-12-18T16:50:57Z"));
  reconcile(job, pods_of("S S", 0), parse_time("2024-12-18T17:22:11Z"));
  job.version = 3620;
  return job;
}

TEST(Object, PrintsTheSameYamlAsKubectl) { EXPECT_EQ(to_yaml(object_json(finished_job())), kShown); }

TEST(Object, PrintedYamlCanBeAppliedAgain) {
  const Job job = finished_job();
  Job again = parse_manifests(kShown, "shown.yaml").jobs.at(0);
  EXPECT_TRUE(again.spec == job.spec);
  again.uid = job.uid;
  again.created = job.created;
  again.version = job.version;
  again.status = job.status;
  const Json annotations = object_json(again)["metadata"]["annotations"];
  EXPECT_EQ(annotations.size(), 1U);
  EXPECT_EQ(object_json(again)["metadata"]["uid"], job.uid);
}

TEST(Object, HasKubectlsLastAppliedAnnotation) {
  Job job = parse_manifests(
                "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata:\n  name: a\n  labels: {team: x}\n  annotations:\n"
                "    note: 'é'\n    kubectl.kubernetes.io/last-applied-configuration: old\nspec:\n  jaxReplicaSpecs:\n"
                "    Worker:\n      template:\n        spec:\n          containers:\n          - name: jax\n"
                "            image: i\n            command: [sh, -c, 'a && b > c < d']\n",
                "a.yaml")
                .jobs.at(0);
  const Json metadata = object_json(job)["metadata"];
  EXPECT_EQ(metadata["annotations"]["kubectl.kubernetes.io/last-applied-configuration"],
            "{\"apiVersion\":\"kubeflow.org/v1\",\"kind\":\"JAXJob\",\"metadata\":{\"annotations\":{\"note\":\"é\"},"
            "\"labels\":{\"team\":\"x\"},\"name\":\"a\",\"namespace\":\"default\"},\"spec\":{\"jaxReplicaSpecs\":{"
            "\"Worker\":{\"template\":{\"spec\":{\"containers\":[{\"command\":[\"sh\",\"-c\",\"a \\u0026\\u0026 b "
            "\\u003e c \\u003c d\"],\"image\":\"i\",\"name\":\"jax\"}]}}}}}}\n");
  EXPECT_EQ(metadata["annotations"]["note"], "é");
  EXPECT_EQ(metadata["labels"]["team"], "x");
}

TEST(Object, ShowsAChangedSuspend) {
  Job job = parse_manifests(kApplied, "job.yaml").jobs.at(0);
  EXPECT_FALSE(object_json(job)["spec"].contains("runPolicy"));
  job.spec.suspend = true;
  EXPECT_EQ(object_json(job)["spec"]["runPolicy"], Json({{"suspend", true}}));
  EXPECT_EQ(object_json(job)["status"], Json::object());
  reconcile(job, {}, at(0));
  const Json status = object_json(job)["status"];
  EXPECT_EQ(status["conditions"][1]["type"], "Suspended");
  EXPECT_FALSE(status.contains("startTime"));
}

TEST(Object, ShowsTheCountsOfAFailedJob) {
  Job job = parse_manifests(kApplied, "job.yaml").jobs.at(0);
  job.spec.restart = RestartPolicy::never;
  reconcile(job, pods_of("R R", 0), at(0));
  EXPECT_EQ(object_json(job)["status"]["replicaStatuses"]["Worker"]["active"], 2);
  reconcile(job, pods_of("F1 R", 0), at(5));
  const Json worker = object_json(job)["status"]["replicaStatuses"]["Worker"];
  EXPECT_EQ(worker["failed"], 1);
  EXPECT_FALSE(worker.contains("active"));
}

TEST(Object, AnIndexedJobHasABatchV1Status) {
  Job job = parse_manifests(
                "apiVersion: batch/v1\nkind: Job\nmetadata: {name: myjob}\nspec:\n  completionMode: Indexed\n"
                "  completions: 3\n  parallelism: 3\n  template:\n    spec:\n      restartPolicy: Never\n"
                "      containers: [{name: main, image: i}]\n",
                "job.yaml")
                .jobs.at(0);
  job.created = at(0);
  reconcile(job, pods_of("R S P", 0), at(1));
  EXPECT_EQ(to_yaml(object_json(job)["status"]),
            "active: 2\ncompletedIndexes: \"1\"\nstartTime: \"2026-01-01T00:00:01Z\"\nsucceeded: 1\n");
  reconcile(job, pods_of("F1 S R", 0), at(2));
  EXPECT_EQ(to_yaml(object_json(job)["status"]), "active: 1\nfailed: 1\nstartTime: \"2026-01-01T00:00:01Z\"\n");
  reconcile(job, pods_of("S S S", 1), at(9));
  EXPECT_EQ(to_yaml(object_json(job)["status"]), R"(completedIndexes: 0-2
completionTime: "2026-01-01T00:00:09Z"
conditions:
- lastProbeTime: "2026-01-01T00:00:09Z"
  lastTransitionTime: "2026-01-01T00:00:09Z"
  message: Reached expected number of succeeded pods
  reason: CompletionsReached
  status: "True"
  type: Complete
failed: 1
startTime: "2026-01-01T00:00:01Z"
succeeded: 3
)");
  Job failed = job;
  failed.status = {};
  failed.spec.backoff_limit = 0;
  reconcile(failed, pods_of("F1 R R", 0), at(3));
  const Json status = object_json(failed)["status"];
  EXPECT_EQ(status["conditions"][0]["type"], "Failed");
  EXPECT_EQ(status["conditions"][0]["reason"], "BackoffLimitExceeded");
  EXPECT_FALSE(status.contains("completionTime"));
}

TEST(StoredJob, JobsRoundTrip) {
  Job job = finished_job();
  job.labels = {{"team", "vision"}};
  job.spec.container.command = {"sh", "-c", "x"};
  job.spec.container.args = {"é\n"};
  job.spec.container.env = {{"A", "1"}, {"B", ""}};
  job.spec.container.env_fields = {{"B", "metadata.name"}};
  job.spec.container.folder = "/tmp";
  job.spec.container.port = 1234;
  job.spec.clean = CleanPodPolicy::all;
  job.spec.backoff_limit = 3;
  job.spec.suspend = true;
  job.status.next_start = at(5);
  job.status.attempt = 7;
  job.status.completed_indexes = "0-2";
  const std::string text = job_to_json(job).dump();
  const Job back = job_from_json(Json::parse(text));
  EXPECT_EQ(job_to_json(back).dump(), text);
  EXPECT_TRUE(back.spec == job.spec);
  EXPECT_TRUE(back.status == job.status);
  EXPECT_EQ(back.manifest.dump(), job.manifest.dump());
  EXPECT_EQ(back.labels, job.labels);
  EXPECT_EQ(to_yaml(object_json(back)), to_yaml(object_json(job)));
  const Job empty = job_from_json(job_to_json(Job{}));
  EXPECT_TRUE(empty.spec == JobSpec{} && empty.status == JobStatus{});
}

TEST(StoredJob, EventsRoundTrip) {
  const JobEvent event = {at(3), true, "pod/mnist-worker-0", "Killed", "by \"me\""};
  EXPECT_TRUE(event_from_json(Json::parse(event_to_json(event).dump())) == event);
}

TEST(StoredJob, RejectsInvalidJson) {
  Json value = job_to_json(finished_job());
  EXPECT_THROWS(job_from_json(Json::array()), Error, "job: cannot read its stored state: ");
  EXPECT_THROWS(job_from_json(Json::object()), Error, "it was edited by hand, or written by another version");
  Json wrong = value;
  wrong["spec"]["restart"] = "Sometimes";
  EXPECT_THROWS(job_from_json(wrong), Error, "restart is \"Sometimes\"");
  wrong = value;
  wrong["spec"]["replicas"] = "two";
  EXPECT_THROWS(job_from_json(wrong), Error, "replicas is \"two\"; it must be a whole number");
  wrong = value;
  wrong["created"] = "yesterday";
  EXPECT_THROWS(job_from_json(wrong), Error, "time: \"yesterday\" is not a valid time");
  EXPECT_THROWS(event_from_json(Json::object()), Error, "event: cannot read its stored state");
}

TEST(JobTimes, RoundTripAndRejectOtherForms) {
  for (const char* text :
       {"2024-12-18T16:47:28Z", "1970-01-01T00:00:00Z", "2024-02-29T23:59:59Z", "0001-01-01T00:00:00Z"})
    EXPECT_EQ(time_text(parse_time(text)), text);
  EXPECT_EQ(parse_time("1970-01-02T00:00:01Z").time_since_epoch().count(), 86401);
  for (const char* text :
       {"", "now", "2024-12-18", "2024-12-18T16:47:28", "2024-12-18 16:47:28Z", "2024-13-18T16:47:28Z",
        "2023-02-29T00:00:00Z", "2024-12-18T24:00:00Z", "2024-12-18T00:60:00Z", "2024-12-18T00:00:60Z",
        "2024-1a-18T00:00:00Z", "x024-12-18T00:00:00Z", "2024-12-18T16:47:28ZZ"})
    EXPECT_THROWS(parse_time(text), Error,
                  std::string("time: \"") + text + "\" is not a valid time; write it as 2024-12-18T16:47:28Z");
}

}  // namespace
}  // namespace lockstep
