// `lockstep apply --on slurm` and the other job commands, on a real Slurm.
#include <map>
#include <nlohmann/json.hpp>

#include "jobs/runner.h"
#include "jobs/slurm/cluster.h"
#include "support/in_folder.h"

#ifdef LOCKSTEP_WITH_GRPC

namespace lockstep {
namespace {

class JobsOnSlurm : public OnSlurm {
 protected:
  void TearDown() override {
    if (SlurmCluster::instance().missing().empty())
      for (const std::string& name : applied_) on_slurm({"delete", name});
    OnSlurm::TearDown();
  }

  static ProgramResult on_slurm(const Words& words) {
    return run_program(Words{program_path(), words[0], "--on", "slurm"} + Words(words.begin() + 1, words.end()));
  }
  static std::string shown(const Words& words) {
    const ProgramResult result = on_slurm(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  }

  // Writes the manifest of a job with two replicas, one on each node, and returns its path.
  std::string manifest(const std::string& name, const std::string& policy, const Words& args,
                       const std::string& more = "") {
    const nlohmann::ordered_json container = {{"name", "jax"},
                                              {"image", "example.org/me/mnist:1"},
                                              {"args", args},
                                              {"resources", {{"limits", {{"cpu", "2"}, {"nvidia.com/gpu", 1}}}}}};
    const std::string text = fmt::format(
        R"({{"apiVersion": "kubeflow.org/v1", "kind": "JAXJob",
             "metadata": {{"name": "{}", "annotations": {{"slurm.lockstep/nodes": "2"{}}}}},
             "spec": {{"jaxReplicaSpecs": {{"Worker": {{"replicas": 2, "restartPolicy": "{}",
                       "template": {{"spec": {{"containers": [{}]}}}}}}}}}}}})",
        name, more, policy, container.dump());
    const std::string path = fmt::format("{}/{}.json", dir_.path(), name);
    FileSystem::real().write(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    return path;
  }
  void apply(const std::string& name, const std::string& policy, const Words& args) {
    EXPECT_EQ(shown({"apply", "-f", manifest(name, policy, args)}), "jaxjob.kubeflow.org/" + name + " created\n");
    applied_.push_back(name);
  }
  static std::string state_of(const std::string& name) {
    const nlohmann::json object = nlohmann::json::parse(shown({"get", "job", name, "-o", "json"}));
    std::string state;
    for (const auto& each : object["status"]["conditions"])
      if (each["status"] == "True") state = each["type"].get<std::string>();
    return state;
  }
  static bool reaches(const std::string& name, const std::string& state) {
    return slurm_eventually([&] { return state_of(name) == state; });
  }

  // The output of replica 0 in all attempts.
  std::string printed_by_first() const {
    std::map<std::string, std::string> all;
    std::error_code error;  // the folder may not exist
    const std::filesystem::recursive_directory_iterator files(dir_.path() + "/state", error), end;
    if (error) return "";
    for (auto file = files; file != end; file.increment(error)) {
      if (error) break;
      const std::string path = file->path();
      if (path.ends_with("-0.log")) all[path] = read_text(path);
    }
    std::string out;
    for (const auto& [path, text] : all) out += text;
    return out;
  }
  // The only run in runs/.
  static std::string only_run() {
    const std::vector<std::string> names = FileSystem::real().list("runs");
    EXPECT_EQ(names.size(), 1u);
    return "runs/" + names.at(0);
  }

  bool makes_steps(int restart) const {
    return comes_true([&] { return trains(printed_by_first(), restart); }, std::chrono::minutes(2));
  }

  std::vector<std::string> applied_;
};

TEST_F(JobsOnSlurm, JobRunsToItsEndAndEveryCommandShowsIt) {
  apply("sum", "Never", {"allreduce"});
  const ProgramResult again = on_slurm({"apply", "-f", manifest("sum", "Never", {"allreduce"})});
  EXPECT_EQ(again.out, "jaxjob.kubeflow.org/sum unchanged\n") << again.err;
  EXPECT_TRUE(reaches("sum", "Succeeded")) << shown({"describe", "job/sum"});
  expect_contains(shown({"logs", "sum", "--replica", "1"}), "Process 1 has y=[2.]\n");
  expect_lacks(shown({"logs", "sum", "--replica", "1"}), "Process 0");
  EXPECT_EQ(shown({"logs", "sum", "--tail", "1"}), "Process 0 has y=[2.]\n");
  const std::string pods = shown({"get", "pods", "-o", "wide"});
  expect_contains(pods, "sum-worker-0");
  expect_contains(pods, "127.0.0.2");
  expect_contains(pods, "Completed");
  const std::string events = shown({"events"});
  expect_contains(events, "submitted as Slurm job ");
  expect_contains(events, "JAXJob default/sum successfully completed.");
  EXPECT_EQ(on_slurm({"logs", "sum", "--previous"}).err,
            "lockstep: logs: sum-worker-0 was started only once; there is no previous log\n");
  EXPECT_EQ(on_slurm({"logs", "sun"}).err,
            "lockstep: job sun: not found in namespace default; did you mean \"sum\"? existing jobs: sum\n");
  EXPECT_EQ(shown({"delete", "sum"}), "jaxjob.kubeflow.org \"sum\" deleted from default namespace\n");
  EXPECT_EQ(
      on_slurm({"logs", "sum"}).err,
      "lockstep: job sum: not found: namespace default has no jobs under Slurm; `lockstep get jobs -A --on slurm` "
      "lists all jobs\n");
}

TEST_F(JobsOnSlurm, FailedJobReportsReplicasAndExitCodes) {
  apply("fails", "ExitCode", {"train", "--dataset", "no-such-data-set"});
  EXPECT_TRUE(reaches("fails", "Failed"));
  const std::string text = shown({"describe", "job/fails"});
  expect_contains(text, "JAXJob fails is failed because 2 Worker replica(s) failed.");
  const nlohmann::json pods = nlohmann::json::parse(shown({"get", "pods", "-o", "json"}));
  expect_contains(pods.dump(), "\"exitCode\":2");
  expect_contains(shown({"logs", "fails"}), "no-such-data-set");
}

TEST_F(JobsOnSlurm, SuspendedAndRequeuedJobReachesTheSameWeights) {
  apply("mnist", "OnFailure", train_command("run", kSteps));
  ASSERT_TRUE(makes_steps(0)) << printed_by_first();
  {
    const PausedTraining run(checkpoints("run"));  // Slurm continues (SIGCONT) the processes it terminates
    expect_contains(shown({"logs", "mnist"}), "\nstep ");
    EXPECT_EQ(shown({"suspend", "mnist"}), "jaxjob.kubeflow.org/mnist suspended\n");
  }
  EXPECT_EQ(state_of("mnist"), "Suspended");
  EXPECT_EQ(shown({"get", "pods"}), "");
  EXPECT_EQ(shown({"resume", "mnist"}), "jaxjob.kubeflow.org/mnist resumed\n");
  ASSERT_TRUE(makes_steps(1)) << printed_by_first();
  std::string number;
  {
    const PausedTraining run(checkpoints("run"));
    ASSERT_TRUE(reaches("mnist", "Running"));
    expect_contains(shown({"logs", "mnist"}), "lockstep: resuming from step ");

    // The same signal as before the time limit.
    const std::string text = shown({"events"});
    const std::string id =
        text.substr(text.rfind("submitted as Slurm job ") + std::string("submitted as Slurm job ").size());
    number = id.substr(0, id.find_first_not_of("0123456789"));
    EXPECT_EQ(run_program({"scancel", "--signal=USR1", number}).code, 0);
  }
  ASSERT_TRUE(reaches("mnist", "Restarting")) << shown({"events"});
  ASSERT_TRUE(restarts_soon(number, 1));
  ASSERT_TRUE(reaches("mnist", "Succeeded")) << shown({"describe", "job/mnist"});
  expect_contains(shown({"logs", "mnist", "--previous"}), "lockstep: stopped by ");
  expect_same_weights(checkpoints("run"), undisturbed());
}

TEST_F(JobsOnSlurm, SubmittedTrainingContinuesInItsRunFolder) {
  const InNewFolder here;
  const Words training = {"train",       "--dataset", small_dataset(), "--batch-size", "50", "--steps", "600",
                          "--log-every", "1"};
  EXPECT_EQ(shown(Words{"submit", "-n", "2", "--nodes", "2", "--cpus", "2", "--name", "kept", "--"} + training),
            "jaxjob.kubeflow.org/kept created\n");
  applied_.push_back("kept");
  ASSERT_TRUE(makes_steps(0)) << printed_by_first();
  const std::string run = only_run();
  {
    const PausedTraining paused(small_dataset());  // Slurm continues (SIGCONT) the processes it terminates
    EXPECT_EQ(shown({"suspend", "kept"}), "jaxjob.kubeflow.org/kept suspended\n");
  }
  EXPECT_EQ(shown({"resume", "kept"}), "jaxjob.kubeflow.org/kept resumed\n");
  ASSERT_TRUE(reaches("kept", "Succeeded")) << shown({"describe", "job/kept"});
  expect_contains(shown({"logs", "kept"}), "lockstep: resuming from step ");
  EXPECT_EQ(only_run(), run);
  const nlohmann::json record = nlohmann::json::parse(read_text(run + "/run.json"));
  EXPECT_EQ(record["state"], "complete");
  EXPECT_EQ(record["step"], 600);
  expect_contains(on_slurm({"logs", "kept", "--since", "1h"}).err,
                  "logs: --since cannot be used under Slurm, whose logs have no times; use --tail");
}

TEST_F(JobsOnSlurm, DeletingARunningJobCancelsIt) {
  apply("long", "Always", train_command("run", 1'000'000));
  ASSERT_TRUE(reaches("long", "Running"));
  shown({"delete", "long"});
  EXPECT_EQ(run_program({"squeue", "--noheader", "--name=long"}).out, "");
}

TEST_F(JobsOnSlurm, RejectedJobIsNotStored) {
  const std::string path =
      manifest("nowhere", "Never", {"allreduce"}, R"(, "slurm.lockstep/partition": "no-such-partition")");
  const ProgramResult result = on_slurm({"apply", "-f", path});
  EXPECT_EQ(result.code, 1);
  expect_contains(result.err, "lockstep: apply: Slurm rejected the job: sbatch: error: invalid partition specified");
  EXPECT_EQ(shown({"get", "jobs", "-o", "name"}), "");
}

TEST(SlurmRunner, MissingSlurmIsReported) {
  const TempDir dir;
  const ProgramResult result = run_program(
      {"env", "PATH=/none", "LOCKSTEP_STATE_DIR=" + dir.path(), program_path(), "get", "jobs", "--on", "slurm"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "lockstep: slurm: sbatch was not found on the PATH; run this on a login node of the cluster\n");
}

}  // namespace
}  // namespace lockstep

#endif
