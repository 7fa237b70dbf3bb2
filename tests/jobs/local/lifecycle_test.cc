// The life cycle of local jobs: apply, run, restart, suspend, end, delete.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/throws.h"
#include "jobs/local/jobs.h"
#include "support/listener.h"

namespace lockstep {
namespace {

TEST_F(LocalJobs, ReplicasHaveTheOperatorsEnvironment) {
  const int port = unused_port();
  Json manifest = shell_job("env", 2,
                            "echo $COORDINATOR_ADDRESS:$COORDINATOR_PORT $NUM_PROCESSES $PROCESS_ID $PYTHONUNBUFFERED "
                            "$MINE; pwd -P; test -r \"$LOCKSTEP_TOKEN_FILE\" && echo token; echo oops >&2");
  container_of(manifest)["env"] = Json::array({{{"name", "MINE"}, {"value", "a b"}}});
  container_of(manifest)["ports"] = Json::array({{{"name", "jaxjob-port"}, {"containerPort", port}}});
  container_of(manifest)["workingDir"] = dir_.path();
  EXPECT_EQ(apply(manifest), "created");
  expect_state("env", "Succeeded");
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(log_of("env", i),
              fmt::format("127.0.0.1:{} 2 ", port) + std::to_string(i) + " 1 a b\n" + dir_.path() + "\ntoken\noops\n");
  const std::vector<Pod> pods = runner().pods(get("env"));
  ASSERT_EQ(pods.size(), 2u);
  EXPECT_EQ(pods[1].phase, PodPhase::succeeded);
  EXPECT_EQ(pods[1].exit_code, 0);
  EXPECT_EQ(pods[1].reason, "Completed");
  EXPECT_TRUE(pods[1].started && pods[1].ended);
  EXPECT_EQ(get("env").status.succeeded, 2);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_EQ(notes_[0], "the image example/none:1 is ignored: replicas are processes on this machine");
  EXPECT_TRUE(contains(events_text("env"), "pod/env-worker-1 Started")) << events_text("env");
}

TEST_F(LocalJobs, ReplicasOfAnIndexedJobHaveTheirIndex) {
  const Json manifest = {
      {"apiVersion", "batch/v1"},
      {"kind", "Job"},
      {"metadata", {{"name", "indexed"}}},
      {"spec",
       {{"completionMode", "Indexed"},
        {"completions", 2},
        {"parallelism", 2},
        {"backoffLimit", 0},
        {"template",
         {{"spec",
           {{"restartPolicy", "Never"},
            {"containers", Json::array({{{"name", "main"},
                                         {"image", "none"},
                                         {"command",
                                          {"/bin/sh", "-c",
                                           "echo $JOB_COMPLETION_INDEX $LOCKSTEP_PROCESS_ID of "
                                           "$LOCKSTEP_NUM_PROCESSES ${LOCKSTEP_COORDINATOR%:*}"}}}})}}}}}}}};
  EXPECT_EQ(apply(manifest), "created");
  expect_state("indexed", "Succeeded");
  EXPECT_EQ(log_of("indexed", 1), "1 1 of 2 127.0.0.1\n");
}

TEST_F(LocalJobs, ArgumentsAreNotChangedByAShell) {
  Json manifest = shell_job("words", 1, "");
  container_of(manifest)["command"] = Json::array({"printf", "%s|"});
  container_of(manifest)["args"] = Json::array({"a b", "", "$(NUM_PROCESSES)", "$$(NUM_PROCESSES)", "$(UNKNOWN)",
                                                "$HOME", "`id`", "$(id)", ";", "&& touch x", "'\"\\", "*", "\n"});
  apply(manifest);
  expect_state("words", "Succeeded");
  EXPECT_EQ(log_of("words", 0), "a b||1|$(NUM_PROCESSES)|$(UNKNOWN)|$HOME|`id`|$(id)|;|&& touch x|'\"\\|*|\n|\n");
}

TEST_F(LocalJobs, OneFailureStopsTheOthersAndFailsTheJob) {
  apply(shell_job("fails", 2, "test $PROCESS_ID = 1 && exit 3; trap 'exit 9' TERM; while :; do sleep 0.01; done"));
  expect_state("fails", "Failed");
  ASSERT_TRUE(soon([&] {
    const std::vector<Pod> pods = runner().pods(get("fails"));
    return std::ranges::all_of(pods, [](const Pod& pod) { return pod.phase == PodPhase::failed; });
  }));
  const std::vector<Pod> pods = runner().pods(get("fails"));
  EXPECT_EQ(pods[1].exit_code, 3);
  EXPECT_EQ(pods[1].reason, "Error");
  EXPECT_EQ(pods[0].reason, "Stopped");
  EXPECT_TRUE(contains(events_text("fails"), "pod/fails-worker-1 Error: Ended with exit code 3"));
}

TEST_F(LocalJobs, ReportsAMissingProgram) {
  Json manifest = shell_job("missing", 1, "");
  container_of(manifest)["command"] = Json::array({"/no/such/program"});
  apply(manifest);
  expect_state("missing", "Failed");
  const std::vector<Pod> pods = runner().pods(get("missing"));
  ASSERT_EQ(pods.size(), 1u);
  EXPECT_EQ(pods[0].reason, "StartError");
  EXPECT_EQ(pods[0].exit_code, 127);
  const std::string why = "start a process: \"/no/such/program\" is not an executable file; correct its path";
  EXPECT_TRUE(contains(events_text("missing"), "pod/missing-worker-0 StartError: " + why)) << events_text("missing");
  EXPECT_EQ(log_of("missing", 0), "lockstep: " + why + "\n");

  container_of(manifest)["command"] = Json::array({"true"});
  container_of(manifest)["workingDir"] = "/no/such";
  manifest["metadata"]["name"] = "nowhere";
  apply(manifest);
  expect_state("nowhere", "Failed");
  EXPECT_TRUE(contains(events_text("nowhere"), "StartError: start in /no/such: No such file or directory"));
}

TEST_F(LocalJobs, RestartsAllReplicasUpToTheLimit) {
  Json manifest = shell_job("again", 2,
                            "echo start >> starts-$PROCESS_ID; test $PROCESS_ID = 1 && exec sleep 600; "
                            "until test \"$(cat starts-0)\" = \"$(cat starts-1)\"; do sleep 0.01; done; exit 1");
  manifest["spec"]["runPolicy"]["backoffLimit"] = 1;
  manifest["spec"]["jaxReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure";
  container_of(manifest)["workingDir"] = dir_.path();
  apply(manifest);
  expect_state("again", "Failed");
  EXPECT_EQ(get("again").status.restarts, 1);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(read_if_exists(dir_.path() + "/starts-" + std::to_string(i)), "start\nstart\n");
  EXPECT_TRUE(contains(events_text("again"), "JAXJobRestarting")) << events_text("again");
}

TEST_F(LocalJobs, KeepsTheLogOfThePreviousAttempt) {
  Json manifest = shell_job("logs", 1, "test -e x && echo second && exit; echo first; touch x; exit 1");
  manifest["spec"]["jaxReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure";
  container_of(manifest)["workingDir"] = dir_.path();
  apply(manifest);
  EXPECT_EQ(log_of("logs", 0, {.follow = true}), "first\n");
  expect_state("logs", "Succeeded");
  EXPECT_EQ(log_of("logs", 0), "second\n");
  EXPECT_EQ(log_of("logs", 0, {.previous = true}), "first\n");
  EXPECT_THROWS(log_of("logs", 1), Error, "logs: job logs has no replica 1; its replicas are 0 to 0");
}

TEST_F(LocalJobs, SuspendStopsAndResumeStartsAgain) {
  Json manifest = shell_job("pause", 2,
                            "echo start >> starts-$PROCESS_ID; test $(wc -l < starts-$PROCESS_ID) -ge 2 && exit 0; "
                            "trap 'exit 0' TERM; while :; do sleep 0.01; done");
  container_of(manifest)["workingDir"] = dir_.path();
  apply(manifest);
  expect_state("pause", "Running");
  ASSERT_TRUE(soon([&] {
    return read_if_exists(dir_.path() + "/starts-0") == "start\n" &&
           read_if_exists(dir_.path() + "/starts-1") == "start\n";
  }));
  runner().set_suspend(get("pause"), true);
  expect_state("pause", "Suspended");
  EXPECT_TRUE(soon([&] { return runner().pods(get("pause")).empty(); }));
  EXPECT_TRUE(get("pause").spec.suspend);
  kill_daemon();
  runner().set_suspend(get("pause"), false);
  expect_state("pause", "Succeeded");
  EXPECT_EQ(read_if_exists(dir_.path() + "/starts-0"), "start\nstart\n");
}

TEST_F(LocalJobs, AJobAppliedAsSuspendedDoesNotStart) {
  Json manifest = shell_job("later", 1, "echo ran");
  manifest["spec"]["runPolicy"]["suspend"] = true;
  EXPECT_EQ(apply(manifest), "created");
  expect_state("later", "Suspended");
  EXPECT_TRUE(pod_folders().empty());
  EXPECT_THROWS(log_of("later", 0), Error, "logs: later-worker-0 has not been started yet; use -f to wait for it");
  manifest["spec"]["runPolicy"]["suspend"] = false;
  EXPECT_EQ(apply(manifest), "configured");
  expect_state("later", "Succeeded");
  EXPECT_EQ(log_of("later", 0), "ran\n");
  EXPECT_EQ(apply(manifest), "unchanged");
  container_of(manifest)["command"] = Json::array({"false"});
  EXPECT_THROW(apply(manifest), Error);
}

TEST_F(LocalJobs, FailsAtItsDeadline) {
  Json manifest = shell_job("slow", 1, "trap '' TERM; while :; do sleep 0.01; done");
  manifest["spec"]["runPolicy"]["activeDeadlineSeconds"] = 4;  // counted in whole seconds: it must have started by then
  manifest["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1;
  apply(manifest);
  expect_state("slow", "Failed");
  // It ignores SIGTERM; SIGKILL follows.
  ASSERT_TRUE(soon([&] { return runner().pods(get("slow")).at(0).phase == PodPhase::failed; }));
  EXPECT_EQ(runner().pods(get("slow"))[0].exit_code, 128 + SIGKILL);
  EXPECT_TRUE(contains(events_text("slow"), "deadline")) << events_text("slow");
}

TEST_F(LocalJobs, IsDeletedAfterItsTimeToLive) {
  Json manifest = shell_job("short", 1, "true");
  manifest["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = 0;
  apply(manifest);
  EXPECT_TRUE(soon([&] { return runner().list("default").empty(); }));
  EXPECT_TRUE(soon([&] { return std::filesystem::is_empty(state_ + "/jobs/default"); }));
}

TEST_F(LocalJobs, CleanPodPolicyAllDeletesTheLogs) {
  Json manifest = shell_job("tidy", 1, "echo words");
  manifest["spec"]["runPolicy"]["cleanPodPolicy"] = "All";
  apply(manifest);
  expect_state("tidy", "Succeeded");
  EXPECT_TRUE(soon([&] { return runner().pods(get("tidy")).empty(); }));
  EXPECT_TRUE(soon([&] { return pod_folders().empty(); }));
  EXPECT_THROWS(log_of("tidy", 0), Error,
                "logs: the log of tidy-worker-0 was deleted: its job has ended, and cleanPodPolicy is All");
}

TEST_F(LocalJobs, DeleteStopsTheReplicas) {
  Json manifest = shell_job("gone", 2, "trap '' TERM; sleep 600 & echo $!; wait");
  manifest["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1;
  apply(manifest);
  expect_state("gone", "Running");
  std::vector<pid_t> processes;
  ASSERT_TRUE(soon([&] { return log_of("gone", 0).ends_with("\n") && log_of("gone", 1).ends_with("\n"); }));
  for (int i = 0; i < 2; ++i) processes.push_back(std::stoi(log_of("gone", i)));
  for (const Pod& pod : runner().pods(get("gone"))) processes.push_back(static_cast<pid_t>(pod.process));
  runner().remove(get("gone"));
  EXPECT_TRUE(runner().list("").empty());
  for (const pid_t pid : processes) EXPECT_TRUE(is_gone_soon(pid)) << pid;
  EXPECT_THROWS(
      get("gone"), Error,
      "job gone: not found: namespace default has no jobs on this machine; `lockstep get jobs -A` lists all jobs");
  apply(shell_job("other", 1, "true"));
  EXPECT_THROWS(get("othr"), Error,
                "job othr: not found in namespace default; did you mean \"other\"? existing jobs: other");
}

TEST_F(LocalJobs, TwoJobsMayRequestTheSamePort) {
  const int port = unused_port();
  Json manifest = shell_job("one", 1, "echo $COORDINATOR_PORT; while test ! -e stop; do sleep 0.01; done");
  container_of(manifest)["ports"] = Json::array({{{"name", "jaxjob-port"}, {"containerPort", port}}});
  container_of(manifest)["workingDir"] = dir_.path();
  apply(manifest);
  manifest["metadata"]["name"] = "two";
  apply(manifest);
  ASSERT_TRUE(soon([&] { return state_of("one") == "Running" && state_of("two") == "Running"; }));
  std::ofstream(dir_.path() + "/stop") << "x";
  expect_state("one", "Succeeded");
  expect_state("two", "Succeeded");
  EXPECT_EQ(log_of("one", 0), fmt::format("{}\n", port));
  EXPECT_NE(log_of("two", 0), fmt::format("{}\n", port));
}

TEST_F(LocalJobs, APortInUseIsReplaced) {
  const Listener listener;
  Json manifest = shell_job("port", 1, "echo $COORDINATOR_PORT");
  container_of(manifest)["ports"] = Json::array({{{"name", "jaxjob-port"}, {"containerPort", listener.port()}}});
  apply(manifest);
  expect_state("port", "Succeeded");
  EXPECT_NE(log_of("port", 0), std::to_string(listener.port()) + "\n");
}

TEST_F(LocalJobs, JobsOfTheSameNameInDifferentNamespacesAreIndependent) {
  Json manifest = shell_job("same", 1, "echo default");
  apply(manifest);
  manifest["metadata"]["namespace"] = "other";
  container_of(manifest)["command"] = Json::array({"echo", "other"});
  apply(manifest);
  EXPECT_TRUE(soon([&] { return is_finished(get("same")) && is_finished(runner().get("other", "same")); }));
  EXPECT_EQ(log_of("same", 0), "default\n");
  EXPECT_EQ(runner().list("").size(), 2u);
  EXPECT_EQ(runner().list("other").size(), 1u);
}

}  // namespace
}  // namespace lockstep
