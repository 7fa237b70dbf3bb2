// Parsing of API objects into jobs, pods and events. The fixtures are validated against the published schemas.
#include "jobs/kubernetes/objects.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/throws.h"
#include "base/os/process.h"
#include "jobs/kubernetes/kubernetes_runner.h"
#include "jobs/kubernetes/pod_status.h"
#include "jobs/kubernetes/schema.h"
#include "jobs/model/yaml_document.h"
#include "lockstep/error.h"
#include "support/program.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Parses a fixture and validates it.
Json object(const std::string& yaml) {
  static const Schemas schemas(std::string(LOCKSTEP_TEST_DATA) + "/schemas/kubernetes.json");
  const Json value = parse_yaml_documents(yaml, "fixture").at(0).value;
  for (const std::string& fault : schemas.faults(value)) ADD_FAILURE() << fault;
  return value;
}
Json list_of(const std::vector<Json>& items) { return {{"apiVersion", "v1"}, {"kind", "List"}, {"items", items}}; }

// From a real cluster with Kubeflow's training operator.
const char* const kJaxJob = R"(
apiVersion: kubeflow.org/v1
kind: JAXJob
metadata:
  creationTimestamp: "2024-12-18T16:47:28Z"
  generation: 1
  labels: {team: vision}
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
          - {name: sidecar, image: log}
          - args: [train]
            env: [{name: A, value: "1"}]
            image: lockstep:1
            name: jax
            ports: [{containerPort: 7777, name: jaxjob-port}]
  runPolicy: {suspend: false, backoffLimit: 3, cleanPodPolicy: Running, ttlSecondsAfterFinished: 60}
status:
  completionTime: "2024-12-18T17:22:11Z"
  conditions:
  - {lastTransitionTime: "2024-12-18T16:47:28Z", lastUpdateTime: "2024-12-18T16:47:29Z", message: JAXJob jaxjob-mnist is created., reason: JAXJobCreated, status: "True", type: Created}
  - {lastTransitionTime: "2024-12-18T16:50:57Z", lastUpdateTime: "2024-12-18T16:50:57Z", message: JAXJob kubeflow/jaxjob-mnist is running., reason: JAXJobRunning, status: "False", type: Running}
  - {lastTransitionTime: "2024-12-18T17:22:11Z", lastUpdateTime: "2024-12-18T17:22:11Z", message: JAXJob kubeflow/jaxjob-mnist successfully completed., reason: JAXJobSucceeded, status: "True", type: Succeeded}
  replicaStatuses:
    Worker: {succeeded: 2}
  startTime: "2024-12-18T16:47:28Z"
)";

const char* const kJob = R"(
apiVersion: batch/v1
kind: Job
metadata: {name: myjob, namespace: default, creationTimestamp: "2026-01-01T00:00:00Z", resourceVersion: "12", uid: u}
spec:
  backoffLimit: 4
  completionMode: Indexed
  completions: 3
  parallelism: 3
  suspend: false
  ttlSecondsAfterFinished: 30
  template:
    spec:
      containers: [{name: lockstep, image: lockstep:1, command: [lockstep], args: [train], ports: [{containerPort: 8080}]}]
      restartPolicy: Never
status: {active: 3, ready: 2, startTime: "2026-01-01T00:00:05Z"}
)";

TEST(KubernetesObjects, EveryFieldOfAJaxJobIsParsed) {
  const Job job = job_of_object(object(kJaxJob));
  EXPECT_EQ(job.kind, JobKind::jax_job);
  EXPECT_EQ(job.name, "jaxjob-mnist");
  EXPECT_EQ(job.namespace_name, "kubeflow");
  EXPECT_EQ(job.uid, "15f1db77-3326-405d-95e6-3d9a0d581611");
  EXPECT_EQ(job.labels.at("team"), "vision");
  EXPECT_EQ(job.version, 3620);
  EXPECT_EQ(time_text(job.created), "2024-12-18T16:47:28Z");
  EXPECT_EQ(job.spec.replicas, 2);
  EXPECT_EQ(job.spec.restart, RestartPolicy::on_failure);
  EXPECT_EQ(job.spec.clean, CleanPodPolicy::running);
  EXPECT_EQ(job.spec.backoff_limit, 3);
  EXPECT_EQ(job.spec.ttl_after_finished, 60);
  EXPECT_EQ(job.spec.container.image, "lockstep:1");  // of the container named jax
  EXPECT_EQ(job.spec.container.port, 7777);
  EXPECT_EQ(job.spec.container.env.at(0).second, "1");
  EXPECT_EQ(job.status.succeeded, 2);
  ASSERT_EQ(job.status.conditions.size(), 3u);
  EXPECT_EQ(time_text(job.status.conditions[0].updated), "2024-12-18T16:47:29Z");
  EXPECT_FALSE(job.status.conditions[1].status);
  EXPECT_EQ(job_state(job), "Succeeded");
  EXPECT_TRUE(is_finished(job));
  EXPECT_EQ(time_text(*job.status.completed), "2024-12-18T17:22:11Z");
  EXPECT_FALSE(job.manifest.contains("status"));
}

TEST(KubernetesObjects, AnIndexedJobHasTheConditionsOfAJaxJob) {
  const Json running = object(kJob);
  Job job = job_of_object(running);
  EXPECT_EQ(job.kind, JobKind::indexed_job);
  EXPECT_EQ(job.spec.replicas, 3);
  EXPECT_EQ(job.spec.container.port, 8080);
  EXPECT_EQ(job.status.active, 3);
  EXPECT_EQ(job_state(job), "Running");
  EXPECT_FALSE(is_finished(job));

  Json complete = running;
  complete["status"] = object(R"({apiVersion: batch/v1, kind: Job, metadata: {}, status: {
    startTime: "2026-01-01T00:00:05Z", completionTime: "2026-01-01T01:00:00Z", succeeded: 3, conditions: [
    {type: SuccessCriteriaMet, status: "True", reason: CompletionsReached, lastTransitionTime: "2026-01-01T01:00:00Z"},
    {type: Complete, status: "True", reason: CompletionsReached, lastTransitionTime: "2026-01-01T01:00:00Z"}]}})")
      ["status"];
  job = job_of_object(complete);
  EXPECT_EQ(job_state(job), "Succeeded");
  EXPECT_TRUE(is_finished(job));
  EXPECT_EQ(job.status.succeeded, 3);

  Json failed = running;
  failed["status"] = object(R"({apiVersion: batch/v1, kind: Job, metadata: {}, status: {failed: 1,
    startTime: "2026-01-01T00:00:05Z", conditions: [{type: Failed, status: "True", reason: PodFailurePolicy,
    message: "Container lockstep for pod default/myjob-1-x failed with exit code 2 matching FailJob rule at index 0",
    lastTransitionTime: "2026-01-01T00:10:00Z"}]}})")["status"];
  job = job_of_object(failed);
  EXPECT_EQ(job_state(job), "Failed");
  EXPECT_EQ(job.status.conditions.back().reason, "PodFailurePolicy");

  Json resumed = running;
  resumed["status"]["conditions"] =
      Json::array({{{"type", "Suspended"}, {"status", "False"}, {"reason", "JobResumed"}}});
  EXPECT_EQ(job_state(job_of_object(resumed)), "Running");
  Json suspended = running;
  suspended["spec"]["suspend"] = true;
  suspended["status"] = {{"conditions", {{{"type", "Suspended"}, {"status", "True"}, {"reason", "JobSuspended"}}}}};
  EXPECT_EQ(job_state(job_of_object(suspended)), "Suspended");
  EXPECT_TRUE(job_of_object(suspended).spec.suspend);
}

TEST(KubernetesObjects, ANewJobWithoutStatusIsParsed) {
  for (const char* text : {kJaxJob, kJob}) {
    Json fresh = object(text);
    fresh.erase("status");
    EXPECT_NO_THROW(job_of_object(fresh));
  }
}

TEST(KubernetesObjects, OtherObjectsAreRejected) {
  Json plain = object(kJob);
  plain["spec"]["completionMode"] = "NonIndexed";
  EXPECT_FALSE(is_job_object(plain));
  EXPECT_THROWS(job_of_object(plain), Error,
                "unsupported kind Job of batch/v1; supported: JAXJob, and Job with completionMode Indexed");
  Json unnamed = object(kJob);
  unnamed["metadata"].erase("name");
  EXPECT_THROWS(job_of_object(unnamed), Error, "a Job has no metadata.name");
  EXPECT_FALSE(is_job_object(Json()));
}

Json pod(const std::string& name, const std::string& index, const std::string& created, const std::string& status) {
  return object(R"({apiVersion: v1, kind: Pod, metadata: {name: )" + name + R"(, creationTimestamp: ")" + created +
                R"(", labels: {job-name: myjob, batch.kubernetes.io/job-completion-index: ")" + index +
                R"("}}, spec: {nodeName: n1, containers: [{name: lockstep, image: x}]}, status: )" + status + "}");
}

TEST(KubernetesObjects, TheNewestPodOfEachIndexIsTheReplica) {
  const Json failed = pod("myjob-1-a", "1", "2026-01-01T00:00:00Z",
                          R"({phase: Failed, containerStatuses: [{name: lockstep, image: x, imageID: y, ready: false,
                              restartCount: 0, state: {terminated: {exitCode: 75, reason: Error,
                              startedAt: "2026-01-01T00:00:01Z", finishedAt: "2026-01-01T00:01:00Z"}}}]})");
  const Json again = pod("myjob-1-b", "1", "2026-01-01T00:01:10Z",
                         R"({phase: Running, containerStatuses: [{name: lockstep, image: x, imageID: y, ready: true,
                             restartCount: 0, state: {running: {startedAt: "2026-01-01T00:01:12Z"}}}]})");
  const Json waiting = pod("myjob-0-c", "0", "2026-01-01T00:00:00Z",
                           R"({phase: Pending, containerStatuses: [{name: lockstep, image: x, imageID: "", ready: false,
                               restartCount: 2, state: {waiting: {reason: ImagePullBackOff}}}]})");
  Json unrelated = pod("other", "7", "2026-01-01T00:00:00Z", "{phase: Running}");
  unrelated["metadata"].erase("labels");
  const std::vector<KubernetesPod> pods = newest_pods_in_list(list_of({again, failed, waiting, unrelated}));
  ASSERT_EQ(pods.size(), 2u);
  EXPECT_EQ(pods[0].name, "myjob-0-c");
  EXPECT_EQ(pods[0].pod.phase, PodPhase::pending);
  EXPECT_EQ(pods[0].pod.reason, "ImagePullBackOff");
  EXPECT_EQ(pods[0].pod.attempt, 2);
  EXPECT_TRUE(pods[0].restarted);
  EXPECT_EQ(pods[1].name, "myjob-1-b");
  EXPECT_EQ(pods[1].predecessor, "myjob-1-a");
  EXPECT_EQ(pods[1].container, "lockstep");
  EXPECT_EQ(pods[1].pod.attempt, 1);
  EXPECT_EQ(pods[1].pod.node, "n1");
  EXPECT_EQ(time_text(*pods[1].pod.started), "2026-01-01T00:01:12Z");

  const Pod ended = newest_pods_in_list(list_of({failed})).at(0).pod;
  EXPECT_EQ(ended.phase, PodPhase::failed);
  EXPECT_EQ(ended.exit_code, 75);
  EXPECT_EQ(ended.reason, "Error");
  EXPECT_EQ(time_text(*ended.ended), "2026-01-01T00:01:00Z");
}

TEST(KubernetesObjects, EventsAreSortedByTime) {
  const auto event = [](const std::string& reason, const std::string& time) {
    return object(
        R"({apiVersion: v1, kind: Event, metadata: {name: e}, involvedObject: {kind: Pod, name: myjob-0-abcde},
      reason: )" +
        reason + R"(, message: m, type: Warning, )" + time + "}");
  };
  const Json list = list_of({event("Second", "lastTimestamp: \"2026-01-01T00:00:02Z\""),
                             event("First", "eventTime: \"2026-01-01T00:00:01.123456Z\"")});
  const std::vector<JobEvent> events = events_of_job(list, job_of_object(object(kJob)), {});
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].reason, "First");
  EXPECT_EQ(time_text(events[0].time), "2026-01-01T00:00:01Z");
  EXPECT_EQ(events[1].object, "pod/myjob-0-abcde");
  EXPECT_TRUE(events[1].warning);
}

TEST(KubernetesObjects, PodStatusEqualsThatOfKubectl) {
  const auto shown = [](const std::string& status, const std::string& more = "") {
    const Json pod = object("{apiVersion: v1, kind: Pod, metadata: {name: p" + more +
                            "}, spec: {initContainers: [{name: i, image: x}, {name: j, image: x}], containers: [{name: "
                            "a, image: x}, {name: b, image: x}]}, status: " +
                            status + "}");
    const PodStatusText text = kubectl_pod_status(pod);
    return fmt::format("{}/{} {}", text.ready, text.containers, text.status);
  };
  const auto container = [](const std::string& state, bool ready = false) {
    return "{name: a, image: x, imageID: y, restartCount: 0, ready: " + std::string(ready ? "true" : "false") +
           ", state: {" + state + "}}";
  };
  const std::string runs = container("running: {}", true), waits = container("waiting: {reason: ContainerCreating}"),
                    done = container("terminated: {exitCode: 0, reason: Completed}");
  EXPECT_EQ(shown("{phase: Pending}"), "0/2 Pending");
  EXPECT_EQ(shown("{phase: Pending, containerStatuses: [" + waits + "]}"), "0/2 ContainerCreating");
  EXPECT_EQ(shown("{phase: Running, containerStatuses: [" + runs + ", " + runs + "]}"), "2/2 Running");
  EXPECT_EQ(shown("{phase: Running, containerStatuses: [" + runs + ", " + done + "]}"), "1/2 NotReady");
  EXPECT_EQ(shown("{phase: Running, conditions: [{type: Ready, status: \"True\"}], containerStatuses: [" + runs + ", " +
                  done + "]}"),
            "1/2 Running");
  EXPECT_EQ(shown("{phase: Running, containerStatuses: [" + container("waiting: {reason: CrashLoopBackOff}") + "]}"),
            "0/2 CrashLoopBackOff");
  EXPECT_EQ(shown("{phase: Failed, containerStatuses: [" + container("terminated: {exitCode: 3}") + "]}"),
            "0/2 ExitCode:3");
  EXPECT_EQ(shown("{phase: Failed, containerStatuses: [" + container("terminated: {exitCode: 137, signal: 9}") + "]}"),
            "0/2 Signal:9");
  EXPECT_EQ(shown("{phase: Failed, reason: Evicted}"), "0/2 Evicted");
  EXPECT_EQ(
      shown("{phase: Running, containerStatuses: [" + runs + "]}", ", deletionTimestamp: \"2026-01-01T00:00:00Z\""),
      "1/2 Terminating");
  EXPECT_EQ(shown("{phase: Pending, initContainerStatuses: [" + done + ", " + runs + "], containerStatuses: [" + waits +
                  "]}"),
            "0/2 Init:1/2");
  EXPECT_EQ(shown("{phase: Pending, initContainerStatuses: [" + container("waiting: {reason: ErrImagePull}") + "]}"),
            "0/2 Init:ErrImagePull");
  EXPECT_EQ(
      shown("{phase: Pending, initContainerStatuses: [" + container("terminated: {exitCode: 1, reason: Error}") + "]}"),
      "0/2 Init:Error");
}

TEST(KubernetesRunner, MissingKubectlIsReportedWithARemedy) {
  const RunningProgram::Result result =
      RunningProgram({"/usr/bin/env", "PATH=/nowhere", program_path(), "get", "jobs", "--on", "kubernetes"}).wait();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.err.find("kubernetes: kubectl was not found on the PATH; install it"), std::string::npos)
      << result.err;
}

// The real kubectl without a cluster.
TEST(KubernetesRunner, AMissingClusterIsReportedWithARemedy) {
  if (find_program("kubectl").empty()) GTEST_SKIP() << "no kubectl";
  const TempDir dir;
  const RunningProgram::Result result =
      RunningProgram({"/usr/bin/env", "-u", "KUBERNETES_SERVICE_HOST", "HOME=" + dir.path(),
                      "KUBECONFIG=" + dir.path() + "/none", program_path(), "get", "jobs", "--on", "kubernetes"})
          .wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("kubectl get: "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("kubectl knows no cluster: set KUBECONFIG to the file of yours"), std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace lockstep
