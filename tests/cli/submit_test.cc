// `lockstep submit`, and the ways of kubectl to list jobs and print logs, on the local runner.
#include <nlohmann/json.hpp>
#include <regex>

#include "cli/training.h"
#include "jobs/model/yaml_document.h"
#include "support/in_folder.h"
#include "support/variable.h"

namespace lockstep {
namespace {

class SubmittedJobs : public testing::Test {
 protected:
  void TearDown() override { run_lockstep({"delete", "--all", "-A"}); }

  static RunningProgram::Result run(const Words& words) { return RunningProgram(Words{program_path()} + words).wait(); }
  // Runs a command that must succeed and returns its standard output.
  static std::string out(const Words& words) {
    const RunningProgram::Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return result.out;
  }
  // Submits a job whose two processes run a shell script, and waits until it has succeeded.
  static void finish(const std::string& name, const std::string& script) {
    EXPECT_EQ(out({"submit", "-n", "2", "--name", name, "--", "/bin/sh", "-c", script}),
              "jaxjob.kubeflow.org/" + name + " created\n");
    out({"wait", "--for=condition=Succeeded", name, "--timeout", "60s"});
  }

  InNewFolder here_;
  TempDir state_dir_;
  const ScopedVariable state_{"LOCKSTEP_STATE_DIR", state_dir_.path()}, idle_{"LOCKSTEP_DAEMON_IDLE", "1"},
      on_{"LOCKSTEP_ON", std::nullopt};
};

TEST_F(SubmittedJobs, RunWithoutAManifestInTheWorkingDirectory) {
  const RunningProgram::Result result = run({"submit", "-n", "2", "--name", "a", "--env", "WORD=$(HOME) x", "--",
                                             "/bin/sh", "-c", "echo \"$WORD $(pwd) $NUM_PROCESSES\""});
  EXPECT_EQ(result.out, "jaxjob.kubeflow.org/a created\n");
  EXPECT_EQ(result.err, "lockstep: follow it with `lockstep logs -f a`\n");
  EXPECT_EQ(out({"logs", "-f", "a"}), "$(HOME) x " + here_.path() + " 2\n");
  EXPECT_EQ(run({"submit", "--name", "a", "--", "devices"}).err,
            "lockstep: submit: job \"a\" exists already; choose another --name, or delete it: lockstep delete a\n");
}

TEST_F(SubmittedJobs, TrainAndKeepTheirRun) {
  out(Words{"submit", "-n", "2", "--name", "digits", "--", "train", "--dataset", small_dataset(), "--batch-size", "50",
            "--steps", "24"});
  const RunningProgram::Result ended = run({"wait", "--for=condition=Succeeded", "digits", "--timeout", "60s"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err << out({"logs", "digits"});
  const nlohmann::json runs = nlohmann::json::parse(out({"runs", "-o", "json"}));
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0]["state"], "complete");
  EXPECT_EQ(runs[0]["devices"]["processes"], 2);
  EXPECT_TRUE(runs[0]["jobs"].begin().key().starts_with("job-"));
}

TEST_F(SubmittedJobs, ThatAreSuspendedResumeTheirRun) {
  out(Words{"submit", "--name", "digits", "--", "train", "--dataset", small_dataset(), "--batch-size", "50", "--steps",
            "1000000", "--checkpoint-every", "20", "--log-every", "1"});
  const auto log_has = [](const std::string& text) {
    return comes_true([&] { return contains(run({"logs", "digits"}).out, text); });
  };
  ASSERT_TRUE(log_has("step 30/"));
  out({"suspend", "digits"});
  ASSERT_TRUE(comes_true([] { return contains(run({"runs"}).out, "stopped"); }));
  out({"resume", "digits"});
  EXPECT_TRUE(log_has("resuming from step")) << run({"logs", "digits"}).out;
  EXPECT_EQ(lines_of(out({"runs", "-o", "name"})).size(), 1u);
}

TEST_F(SubmittedJobs, DryRunPrintsTheManifest) {
  const auto manifest = [](const Words& words) {
    return nlohmann::json(parse_yaml_documents(out(words), "submit").back().value);
  };
  const nlohmann::json job =
      manifest({"submit",     "-n",          "4",    "--name",         "x",   "--gpus",      "1",        "--cpus",
                "2",          "--memory",    "8Gi",  "--time",         "90m", "--partition", "gpu",      "--account",
                "me",         "--nodes",     "2",    "--max-restarts", "0",   "--env",       "A=b $(c)", "--image",
                "my/image:1", "--namespace", "team", "--dry-run",      "--",  "train",       "--expect", "loss<1"});
  EXPECT_EQ(job["kind"], "JAXJob");
  EXPECT_EQ(job["metadata"]["name"], "x");
  EXPECT_EQ(job["metadata"]["namespace"], "team");
  EXPECT_EQ(job["metadata"]["annotations"], nlohmann::json({{"slurm.lockstep/account", "me"},
                                                            {"slurm.lockstep/nodes", "2"},
                                                            {"slurm.lockstep/partition", "gpu"}}));
  EXPECT_EQ(job["spec"]["runPolicy"]["activeDeadlineSeconds"], 5400);
  EXPECT_EQ(job["spec"]["runPolicy"]["backoffLimit"], 0);
  const nlohmann::json worker = job["spec"]["jaxReplicaSpecs"]["Worker"],
                       container = worker["template"]["spec"]["containers"][0];
  EXPECT_EQ(worker["replicas"], 4);
  EXPECT_EQ(worker["restartPolicy"], "Never");
  EXPECT_EQ(container["image"], "my/image:1");
  EXPECT_EQ(container["command"], nlohmann::json({"lockstep"}));
  EXPECT_EQ(container["args"], nlohmann::json({"train", "--expect", "loss<1"}));
  EXPECT_EQ(container["env"].back(), nlohmann::json({{"name", "A"}, {"value", "b $$(c)"}}));
  EXPECT_EQ(container["resources"]["limits"], nlohmann::json({{"cpu", "2"}, {"memory", "8Gi"}, {"nvidia.com/gpu", 1}}));

  // Without flags, a job outside of Kubernetes has no limits but those of its runner, and restarts after the failures
  // that a restart may fix.
  const nlohmann::json plain = manifest({"submit", "--name", "x", "--dry-run", "--", "train"}),
                       pod = plain["spec"]["jaxReplicaSpecs"]["Worker"];
  EXPECT_EQ(plain["spec"]["runPolicy"]["backoffLimit"], 3);
  EXPECT_EQ(pod["restartPolicy"], "ExitCode");
  EXPECT_EQ(pod["template"]["spec"]["containers"][0]["resources"]["limits"], nlohmann::json::object());
  for (const auto& each : pod["template"]["spec"]["containers"][0]["env"])
    EXPECT_EQ(each["name"], "LOCKSTEP_TOKEN_FILE");

  EXPECT_TRUE(std::regex_match(manifest({"submit", "--dry-run", "--", "train"})["metadata"]["name"].get<std::string>(),
                               std::regex("train-[0-9a-f]{5}")));
  EXPECT_TRUE(manifest({"submit", "--dry-run", "--", "./My_Task2"})["metadata"]["name"].get<std::string>().starts_with(
      "my-task2-"));
  EXPECT_EQ(run({"submit", "--gpus", "1", "--partition", "x", "--volume", "a:/b", "--dry-run", "--", "train"}).err,
            "lockstep: note: --gpus has no effect with --on local\n"
            "lockstep: note: --volume has no effect with --on local\n"
            "lockstep: note: --partition has no effect with --on local\n");
}

// The same text as `lockstep render kubernetes` writes for these variables.
TEST_F(SubmittedJobs, OnKubernetesHaveTheManifestOfRender) {
  EXPECT_EQ(out({"submit", "--on", "kubernetes", "--kind", "indexed-job", "--namespace", "a", "--name", "x", "-n", "2",
                 "--volume", "runs:/data", "--dry-run", "--", "train", "--run-dir", "/data/run"}),
            out({"render", "kubernetes",
                 "--set",  "namespace=a",
                 "--set",  "name=x",
                 "--set",  "hosts_count=2",
                 "--set",  "backoff=3",
                 "--set",  "volumes=[\"runs:/data\"]",
                 "--set",  "token_secret=x-token",
                 "--set",  "local_device_count=null",
                 "--set",  "command=[\"lockstep\"]",
                 "--set",  "args=[\"train\",\"--run-dir\",\"/data/run\"]"}));
}

TEST_F(SubmittedJobs, WrongCommandLinesNameTheRemedy) {
  const std::string example = "such as `lockstep submit -n 2 --name mnist -- train --model mlp`";
  expect_usage_error({"submit", "train"}, "submit: no command after --; add one, " + example);
  expect_usage_error({"submit", "--"}, "submit: no command after --; add one, " + example);
  expect_usage_error({"submit", "-n", "--", "train"}, "submit: -n needs a number, " + example);
  expect_usage_error({"submit", "--", "trian"},
                     "submit: unknown command \"trian\"; did you mean \"train\"? to start another program, give its "
                     "path");
  expect_usage_error({"submit", "--", "launch"},
                     "submit: a job cannot start launch; give the command that every process runs, " + example);
  expect_usage_error({"submit", "--", "train", "--modle", "cnn"},
                     "train: unknown flag --modle; did you mean \"--model\"? see `lockstep train --help`");
  expect_usage_error({"submit", "--time", "90", "--", "train"},
                     "submit: --time: \"90\" is not a time such as 90s, 30m, 2h or 1d; see `lockstep submit --help`");
  expect_usage_error({"submit", "--env", "A", "--", "train"}, "submit: --env: \"A\" is not NAME=VALUE");
  expect_usage_error({"submit", "--name", "Not_a_name", "--dry-run", "--", "train"},
                     "submit: name is \"Not_a_name\"; use at most 63 lowercase letters, digits and hyphens, starting "
                     "with a letter");
}

TEST_F(SubmittedJobs, LogsOfAllReplicasHaveTheirNames) {
  finish("a", "echo one from $PROCESS_ID; echo two; printf end");
  finish("b", "echo b");
  const std::string of_a =
      "[a-worker-0] one from 0\n[a-worker-0] two\n[a-worker-0] end\n"
      "[a-worker-1] one from 1\n[a-worker-1] two\n[a-worker-1] end\n";
  EXPECT_EQ(out({"logs", "a", "--all-replicas"}), of_a);
  EXPECT_EQ(out({"logs", "-l", "training.kubeflow.org/job-name=a"}), of_a);
  EXPECT_EQ(out({"logs", "-l", "training.kubeflow.org/replica-index=1", "--tail", "1"}),
            "[a-worker-1] end\n[b-worker-1] b\n");
  std::vector<std::string> followed = lines_of(out({"logs", "-f", "a", "--all-replicas"}));
  std::ranges::stable_sort(followed, {}, [](const std::string& line) { return line.substr(0, 12); });
  EXPECT_EQ(followed, lines_of(of_a));
  EXPECT_EQ(out({"logs", "a", "--since", "1h"}), "one from 0\ntwo\nend\n");
  EXPECT_EQ(run({"logs", "-l", "app=none"}).err, "No resources found in default namespace.\n");
  const auto error_of = [](const Words& words) { return run(Words{"logs"} + words).err; };
  EXPECT_EQ(error_of({}), "lockstep: logs: no job given; give a job, a pod, or labels with -l\n");
  EXPECT_EQ(error_of({"a", "-l", "x=y"}), "lockstep: logs: a name cannot be combined with -l; use one of them\n");
  EXPECT_EQ(error_of({"a", "--all-replicas", "--replica", "1"}),
            "lockstep: logs: --replica cannot be combined with --all-replicas; omit one of them\n");
  EXPECT_EQ(error_of({"a-worker-1", "--all-replicas"}),
            "lockstep: logs: a-worker-1 is a single pod; give its job for --all-replicas\n");
  EXPECT_EQ(error_of({"a", "--since", "soon"}),
            "lockstep: logs: --since: \"soon\" is not a time such as 90s, 5m or 2h; see `lockstep logs --help`\n");
}

TEST_F(SubmittedJobs, AreListedInTheWaysOfKubectl) {
  finish("a", "true");
  const std::vector<std::string> both = lines_of(out({"get", "jobs,pods"}));
  ASSERT_EQ(both.size(), 6u);
  EXPECT_TRUE(both[0].starts_with("NAME ")) << both[0];
  EXPECT_TRUE(both[1].starts_with("jaxjob.kubeflow.org/a   Succeeded")) << both[1];
  EXPECT_EQ(both[2], "");
  EXPECT_TRUE(both[4].starts_with("pod/a-worker-0   0/1     Completed")) << both[4];
  EXPECT_EQ(lines_of(out({"get", "all"})).size(), 6u);
  EXPECT_EQ(out({"get", "all", "-o", "name"}), "pod/a-worker-0\npod/a-worker-1\njaxjob.kubeflow.org/a\n");
  EXPECT_EQ(out({"get", "pods", "-o", "jsonpath={range .items[*]}{.metadata.name}={.status.phase}{\"\\n\"}{end}"}),
            "a-worker-0=Succeeded\na-worker-1=Succeeded\n");
  EXPECT_EQ(out({"get", "jaxjob", "a", "-o", "jsonpath={.metadata.name}"}), "a");
  EXPECT_EQ(out({"get", "pods", "-o", "custom-columns=POD:.metadata.name,NONE:.x"}),
            "POD          NONE\na-worker-0   <none>\na-worker-1   <none>\n");
  EXPECT_EQ(nlohmann::json::parse(out({"get", "jobs,pods", "-o", "json"}))["items"].size(), 3u);
  const std::vector<std::string> labels = lines_of(out({"get", "pods", "--show-labels"}));
  ASSERT_EQ(labels.size(), 3u);
  EXPECT_TRUE(labels[0].ends_with("AGE   LABELS") || contains(labels[0], "LABELS")) << labels[0];
  expect_contains(labels[1], "training.kubeflow.org/replica-index=0");
  EXPECT_TRUE(lines_of(out({"get", "jobs", "--show-labels"}))[1].ends_with(
      "app.kubernetes.io/instance=a,app.kubernetes.io/name=lockstep"));
}

}  // namespace
}  // namespace lockstep
