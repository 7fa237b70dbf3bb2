// Translation of manifests into batch scripts, and of Slurm's states into the status of jobs.
#include "jobs/slurm/script_from_job.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/throws.h"
#include "jobs/model/manifest.h"
#include "jobs/slurm/status.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

Job job_of(const std::string& annotations, const std::string& run_policy, const std::string& worker,
           const std::string& container) {
  const std::string text = fmt::format(R"(apiVersion: kubeflow.org/v1
kind: JAXJob
metadata:
  name: mnist
  annotations: {{{}}}
spec:
  runPolicy: {{{}}}
  jaxReplicaSpecs:
    Worker:
      replicas: 4
{}
      template:
        spec:
          containers:
          - name: jax
            image: example.org/me/mnist:1
{}
)",
                                       annotations, run_policy, worker, container);
  return parse_manifests(text, "job.yaml").jobs.at(0);
}

SlurmScript script_of(const Job& job) {
  return slurm_script_from_job(job,
                               {.program = "/bin/lockstep", .folder = "/home/me", .logs = "/logs", .first_attempt = 2},
                               [](std::string_view) {});
}

TEST(SlurmScriptFromJob, PlainJobRunsLockstepTrainInEachTask) {
  std::string notes;
  const SlurmScript script =
      slurm_script_from_job(job_of("", "", "", ""), {.program = "/bin/lockstep", .folder = "/home/me", .logs = "/logs"},
                            [&](std::string_view text) { notes += text; });
  EXPECT_EQ(script.name, "mnist");
  EXPECT_EQ(script.tasks, 4);
  EXPECT_EQ(script.command, (std::vector<std::string>{"/bin/lockstep", "train"}));
  EXPECT_EQ(script.folder, "/home/me");
  EXPECT_EQ(script.requeue, Requeue::never);
  EXPECT_EQ(script.signal_seconds, 120);
  EXPECT_EQ(notes,
            "the image example.org/me/mnist:1 is ignored: the command runs directly on the nodes; to run inside the "
            "image, set the "
            "annotation slurm.lockstep/runtime: apptainer (or singularity, pyxis)");
}

TEST(SlurmScriptFromJob, LimitsAndAnnotationsBecomeSbatchOptions) {
  const SlurmScript script = script_of(job_of(
      "slurm.lockstep/nodes: '2', slurm.lockstep/partition: gpu, slurm.lockstep/time: '1:00:00', "
      "slurm.lockstep/modules: "
      "'dl, cuda/12', slurm.lockstep/runtime: apptainer, slurm.lockstep/sbatch: '--exclusive --nice', other/x: y",
      "backoffLimit: 3", "      restartPolicy: ExitCode",
      "            workingDir: sub\n            command: [lockstep, train]\n            args: [--model, $(MODEL)]\n"
      "            env: [{name: MODEL, value: a b}]\n"
      "            resources: {limits: {cpu: 2500m, memory: 6Gi, nvidia.com/gpu: 1}}"));
  EXPECT_EQ(script.nodes, 2);
  EXPECT_EQ(script.tasks_per_node, 2);
  EXPECT_EQ(script.gpus_per_node, 2);
  EXPECT_EQ(script.gpus_per_task, 0);
  EXPECT_EQ(script.cpus_per_task, 3);
  EXPECT_EQ(script.memory_per_cpu, "2048M");
  EXPECT_EQ(script.partition, "gpu");
  EXPECT_EQ(script.time, "1:00:00");
  EXPECT_EQ(script.modules, (std::vector<std::string>{"dl", "cuda/12"}));
  EXPECT_EQ(script.sbatch, (std::vector<std::string>{"--exclusive", "--nice"}));
  EXPECT_EQ(script.image, "example.org/me/mnist:1");
  EXPECT_EQ(script.command, (std::vector<std::string>{"lockstep", "train", "--model", "a b"}));
  EXPECT_EQ(script.env, (std::vector<std::pair<std::string, std::string>>{{"MODEL", "a b"}}));
  EXPECT_EQ(script.folder, "/home/me/sub");
  EXPECT_EQ(script.requeue, Requeue::retryable);
  EXPECT_EQ(script.max_requeues, 3);
  EXPECT_EQ(script.first_attempt, 2);
}

TEST(SlurmScriptFromJob, GpusArePerTaskWithoutANumberOfNodes) {
  const SlurmScript script =
      script_of(job_of("", "activeDeadlineSeconds: 130", "      restartPolicy: OnFailure",
                       "            command: [/bin/sleep, '1']\n            resources: {limits: {nvidia.com/gpu: 2}}"));
  EXPECT_EQ(script.gpus_per_task, 2);
  EXPECT_EQ(script.time, "3");
  EXPECT_EQ(script.requeue, Requeue::any_failure);
  EXPECT_EQ(script.signal_seconds, 0);  // SIGUSR1 would kill a program without a handler
}

TEST(SlurmScriptFromJob, SignalComesAtTheEarliestAfterHalfOfTheTimeLimit) {
  EXPECT_EQ(script_of(job_of("", "activeDeadlineSeconds: 60", "", "")).signal_seconds, 30);
  EXPECT_EQ(script_of(job_of("slurm.lockstep/signal-seconds: '10'", "", "", "")).signal_seconds, 10);
}

TEST(SlurmScriptFromJob, ReplicasMayHaveDifferentCommands) {
  const SlurmScript script =
      script_of(job_of("", "", "",
                       "            args: [train, --log-dir, $(POD)]\n"
                       "            env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]"));
  ASSERT_EQ(script.per_task.size(), 4u);
  EXPECT_EQ(script.per_task[3].command,
            (std::vector<std::string>{"/bin/lockstep", "train", "--log-dir", "mnist-worker-3"}));
  EXPECT_EQ(script.signal_seconds, 120);
}

TEST(SlurmScriptFromJob, InvalidAnnotationsAndLimitsAreRejected) {
  EXPECT_THROWS(script_of(job_of("slurm.lockstep/partion: gpu", "", "", "")), Error,
                "apply: annotation slurm.lockstep/ of mnist: unknown value \"partion\"; choose account, ");
  EXPECT_THROWS(script_of(job_of("slurm.lockstep/nodes: two", "", "", "")), Error,
                "apply: nodes of mnist is \"two\"; use a non-negative integer");
  EXPECT_THROWS(script_of(job_of("slurm.lockstep/nodes: '3'", "", "", "")), Error,
                "apply: mnist has 4 replicas on 3 nodes; the number of replicas must be a multiple of the number of "
                "nodes");
  EXPECT_THROWS(script_of(job_of("", "", "", "            resources: {limits: {memory: much}}")), Error,
                "apply: the limit memory of mnist is \"much\"; use a quantity such as 2, 500m or 8Gi");
  EXPECT_THROWS(script_of(job_of("", "", "", "            resources: {limits: {cpu: 66666666666666666666m}}")), Error,
                "apply: the limit cpu of mnist is \"66666666666666666666m\"; the maximum is 1000000");
  EXPECT_THROWS(script_of(job_of("", "", "", "            resources: {limits: {nvidia.com/gpu: -1}}")), Error,
                "apply: the limit nvidia.com/gpu of mnist is \"-1\"; use a quantity such as 2, 500m or 8Gi");
}

JobTime at(int64_t seconds) { return JobTime(std::chrono::seconds(seconds)); }

SlurmJob submitted_job(const std::string& run_policy = "") {
  SlurmJob out;
  out.job = job_of("", run_policy, "      restartPolicy: OnFailure", "");
  out.id = "12";
  return out;
}

std::string last_message(const SlurmJob& job) { return job.job.status.conditions.back().message; }

TEST(SlurmStatus, FollowsAJobThroughARequeueToItsEnd) {
  SlurmJob job = submitted_job();
  update_status(job, {.state = "PENDING", .reason = "Resources"}, {}, at(1));
  EXPECT_EQ(job.job.status.active, 0);
  EXPECT_EQ(slurm_pods(job, {}).at(3).phase, PodPhase::pending);

  update_status(job, {.state = "RUNNING", .started = at(5), .nodes = "n[1-2]"}, {}, at(9));
  EXPECT_EQ(job_state(job.job), "Running");
  EXPECT_EQ(job.job.status.active, 4);
  EXPECT_EQ(job.job.status.started, at(5));
  EXPECT_EQ(slurm_pods(job, {}).at(1).node, "n1");
  EXPECT_EQ(slurm_pods(job, {}).at(2).node, "n2");

  update_status(job, {.state = "PENDING", .restarts = 1}, {}, at(20));
  EXPECT_EQ(job_state(job.job), "Restarting");
  EXPECT_EQ(last_message(job), "JAXJob mnist is restarting because Slurm requeued it.");
  EXPECT_EQ(job.job.status.restarts, 1);

  update_status(job, {.state = "RUNNING", .restarts = 1, .started = at(30), .nodes = "n[1-2]"}, {}, at(31));
  EXPECT_EQ(job_state(job.job), "Running");
  update_status(job, {.state = "COMPLETED", .restarts = 1, .started = at(30), .ended = at(40), .nodes = "n[1-2]"}, {},
                at(41));
  EXPECT_EQ(job_state(job.job), "Succeeded");
  EXPECT_EQ(last_message(job), "JAXJob default/mnist successfully completed.");
  EXPECT_EQ(job.job.status.succeeded, 4);
  EXPECT_EQ(job.job.status.completed, at(40));
  EXPECT_EQ(slurm_pods(job, {}).at(0).reason, "Completed");
  EXPECT_EQ(slurm_pods(job, {}).at(0).attempt, 1);

  const int64_t version = job.job.version;
  update_status(job, {.state = "FAILED"}, {}, at(50));  // a finished job does not change
  EXPECT_EQ(job.job.version, version);
  EXPECT_EQ(job_state(job.job), "Succeeded");
}

TEST(SlurmStatus, FailedConditionNamesTheCause) {
  const auto message = [](const SlurmJobInfo& info, const std::map<int, int>& exit_codes, const char* policy = "") {
    SlurmJob job = submitted_job(policy);
    update_status(job, info, exit_codes, at(9));
    EXPECT_EQ(job_state(job.job), "Failed");
    return last_message(job);
  };
  EXPECT_EQ(message({.state = "FAILED", .exit_code = 3}, {{0, 3}, {2, 75}, {3, 0}}),
            "JAXJob mnist is failed because 2 Worker replica(s) failed.");
  EXPECT_EQ(message({.state = "FAILED", .exit_code = 127}, {}),
            "JAXJob mnist is failed because Slurm job 12 ended with exit code 127.");
  EXPECT_EQ(message({.state = "FAILED", .restarts = 2, .exit_code = 1}, {{0, 1}}, "backoffLimit: 2"),
            "Job mnist has failed because it has reached the specified backoff limit");
  EXPECT_EQ(message({.state = "TIMEOUT"}, {}),
            "Job mnist has failed because it was active longer than specified deadline");
  EXPECT_EQ(message({.state = "CANCELLED"}, {}), "JAXJob mnist is failed because Slurm job 12 was cancelled.");
  EXPECT_EQ(message({.state = "NODE_FAIL", .nodes = "n[1-2]"}, {}),
            "JAXJob mnist is failed because Slurm job 12 lost a node of n[1-2].");
  EXPECT_EQ(message({.state = "OUT_OF_MEMORY"}, {}),
            "JAXJob mnist is failed because Slurm job 12 exceeded its memory limit.");
  EXPECT_EQ(message({.state = "PREEMPTED"}, {}), "JAXJob mnist is failed because Slurm job 12 was preempted.");
}

TEST(SlurmStatus, ReplicasHaveTheExitCodesThatSrunReports) {
  SlurmJob job = submitted_job();
  const std::map<int, int> exit_codes = {{1, 139}, {2, 75}};
  update_status(job, {.state = "FAILED", .exit_code = 139, .started = at(1), .ended = at(2), .nodes = "n1"}, exit_codes,
                at(9));
  const std::vector<Pod> pods = slurm_pods(job, exit_codes);
  EXPECT_EQ(pods[0].phase, PodPhase::succeeded);
  EXPECT_EQ(pods[1].exit_code, 139);
  EXPECT_EQ(pods[1].reason, "Error");
  EXPECT_EQ(pods[2].exit_code, 75);
  EXPECT_EQ(pods[2].ended, at(2));

  SlurmJob lost = submitted_job();
  update_status(lost, {.state = "NODE_FAIL"}, {}, at(9));
  EXPECT_EQ(slurm_pods(lost, {})[0].reason, "Lost");
  EXPECT_EQ(slurm_pods(lost, {})[0].exit_code, std::nullopt);
}

TEST(SlurmStatus, AResumedJobIsANewSlurmJobAndANewAttempt) {
  SlurmJob job = submitted_job();
  update_status(job, {.state = "RUNNING", .restarts = 1, .started = at(5), .nodes = "n1"}, {}, at(9));
  set_suspended(job, at(10));
  EXPECT_EQ(job_state(job.job), "Suspended");
  EXPECT_TRUE(job.id.empty());
  EXPECT_TRUE(slurm_pods(job, {}).empty());
  job.id = "13";
  set_resumed(job, at(20));
  EXPECT_EQ(job.job.status.attempt, 2);
  update_status(job, {.state = "RUNNING", .started = at(21), .nodes = "n1"}, {}, at(22));
  EXPECT_EQ(job_state(job.job), "Running");
  EXPECT_EQ(job.job.status.attempt, 2);
  EXPECT_EQ(job.job.status.restarts, 0);
  EXPECT_EQ(job.job.status.started, at(21));
}

TEST(SlurmStatus, IsRestoredFromJson) {
  SlurmJob job = submitted_job();
  update_status(job, {.state = "RUNNING", .restarts = 1, .started = at(5), .nodes = "n1"}, {}, at(9));
  const nlohmann::ordered_json json = slurm_job_to_json(job);
  EXPECT_EQ(slurm_job_to_json(slurm_job_from_json(json)), json);
  EXPECT_THROWS(slurm_job_from_json(nlohmann::ordered_json::object()), Error, "read a Slurm job: ");
}

}  // namespace
}  // namespace lockstep
