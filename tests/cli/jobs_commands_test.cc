// Local jobs from apply to delete, through the command line.
#include <nlohmann/json.hpp>

#include "cli/training.h"
#include "support/in_folder.h"
#include "support/variable.h"

namespace lockstep {
namespace {

// A state folder of this test, which the destructor removes with its jobs.
class Jobs : public testing::Test {
 protected:
  void TearDown() override { run_lockstep({"delete", "--all", "-A"}); }

  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }

  // The manifest of a JAXJob with two replicas that run a shell command.
  std::string manifest(const std::string& name, const std::string& line, const std::string& policy = "Never") {
    const std::string text = "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata:\n  name: " + name +
                             "\n  namespace: kubeflow\n  labels: {app: " + name +
                             "}\nspec:\n  runPolicy: {backoffLimit: 1}\n"
                             "  jaxReplicaSpecs:\n    Worker:\n      replicas: 2\n      restartPolicy: " +
                             policy +
                             "\n      template:\n        spec:\n          containers:\n          - name: jax\n"
                             "            image: example/none\n            command: [sh, -c, '" +
                             line + "']\n";
    const std::string file = path(name + ".yaml");
    FileSystem::real().write(file, std::vector<uint8_t>(text.begin(), text.end()));
    return file;
  }

  RunningProgram::Result run(Words words) const {
    words.insert(words.begin(), program_path());
    return RunningProgram(words).wait();
  }
  // Runs a command that must succeed and returns its standard output.
  std::string out(const Words& words) const {
    const RunningProgram::Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return result.out;
  }
  void expect_error(const Words& words, const std::string& message, int code = 1) const {
    const RunningProgram::Result result = run(words);
    EXPECT_EQ(result.exit_code, code) << result.out << result.err;
    EXPECT_EQ(result.err, "lockstep: " + message + "\n");
  }
  void start(const std::string& name, const std::string& line, const std::string& policy = "Never") {
    EXPECT_EQ(out({"apply", "-f", manifest(name, line, policy)}), "jaxjob.kubeflow.org/" + name + " created\n");
  }
  RunningProgram::Result wait_for(const std::string& what, const std::string& name) const {
    return run({"wait", "--for=" + what, name, "-n", "kubeflow", "--timeout", "60s"});
  }

  TempDir dir_;
  InNewFolder here_;  // where jobs keep their runs

 private:
  const ScopedVariable state_{"LOCKSTEP_STATE_DIR", dir_.path() + "/state"}, idle_{"LOCKSTEP_DAEMON_IDLE", "1"},
      on_{"LOCKSTEP_ON", std::nullopt};
};

const Words kSpace = {"-n", "kubeflow"};

TEST_F(Jobs, LifecycleFromApplyToDelete) {
  start("mnist", "echo hello from $PROCESS_ID of $NUM_PROCESSES");
  EXPECT_EQ(wait_for("condition=Succeeded", "mnist").out, "jaxjob.kubeflow.org/mnist condition met\n");
  EXPECT_EQ(wait_for("condition=complete", "mnist").exit_code, 0);
  EXPECT_EQ(wait_for("condition=Running=false", "mnist").exit_code, 0);
  const std::vector<std::string> pods =
      lines_of(out({"get", "pods", "-n", "kubeflow", "-l", "training.kubeflow.org/job-name=mnist"}));
  ASSERT_EQ(pods.size(), 3u);
  EXPECT_EQ(pods[0], "NAME             READY   STATUS      RESTARTS   AGE");
  EXPECT_TRUE(pods[1].starts_with("mnist-worker-0   0/1     Completed   0          ")) << pods[1];
  EXPECT_TRUE(pods[2].starts_with("mnist-worker-1   0/1     Completed   0          ")) << pods[2];

  const std::string pod = out(Words{"get", "pods", "-o", "name", "-l",
                                    "training.kubeflow.org/replica-type=worker,training.kubeflow.org/replica-index=1"} +
                              kSpace);
  EXPECT_EQ(pod, "pod/mnist-worker-1\n");
  for (const char* name : {"pod/mnist-worker-1", "pods/mnist-worker-1", "mnist-worker-1"})
    EXPECT_EQ(out(Words{"logs", "-f", name} + kSpace), "hello from 1 of 2\n") << name;
  for (const char* name : {"mnist", "job/mnist", "jaxjob/mnist", "jaxjobs.kubeflow.org/mnist"})
    EXPECT_EQ(out(Words{"logs", name} + kSpace), "hello from 0 of 2\n") << name;
  EXPECT_EQ(out(Words{"logs", "mnist", "--replica", "1", "--tail", "1"} + kSpace), "hello from 1 of 2\n");
  EXPECT_EQ(out(Words{"logs", "mnist", "--tail", "0"} + kSpace), "");

  EXPECT_EQ(out(Words{"delete", "job", "mnist"} + kSpace),
            "jaxjob.kubeflow.org \"mnist\" deleted from kubeflow namespace\n");
  const RunningProgram::Result none = run(Words{"get", "pods"} + kSpace);
  EXPECT_EQ(none.exit_code, 0);
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(none.err, "No resources found in kubeflow namespace.\n");
  EXPECT_EQ(run({"get", "jobs", "-A"}).err, "No resources found\n");
}

TEST_F(Jobs, GetPrintsObjectsAsYamlAndJson) {
  start("mnist", "exit 0");
  wait_for("condition=Succeeded", "mnist");
  for (const char* word : {"job", "jobs", "jaxjob", "jaxjobs", "jaxjobs.kubeflow.org", "JAXJob"}) {
    const std::string yaml = out(Words{"get", "-o", "yaml", word, "mnist"} + kSpace);
    EXPECT_TRUE(yaml.starts_with("apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata:\n  annotations:\n")) << yaml;
    expect_contains(yaml, "    message: JAXJob kubeflow/mnist successfully completed.\n");
    expect_contains(yaml, "      succeeded: 2\n");
  }
  const auto one = nlohmann::json::parse(out(Words{"get", "job/mnist", "-o", "json"} + kSpace));
  EXPECT_EQ(one["kind"], "JAXJob");
  const auto pods = nlohmann::json::parse(out(Words{"get", "pods", "-o", "json"} + kSpace));
  EXPECT_EQ(pods["kind"], "List");
  EXPECT_EQ(pods["items"][1]["metadata"]["name"], "mnist-worker-1");
  EXPECT_EQ(pods["items"][1]["status"]["phase"], "Succeeded");
  EXPECT_EQ(nlohmann::json::parse(out(Words{"get", "pod", "mnist-worker-0", "-o", "json"} + kSpace))["kind"], "Pod");
  EXPECT_EQ(out(Words{"get", "jobs", "-o", "name", "-l", "app in (mnist)"} + kSpace), "jaxjob.kubeflow.org/mnist\n");
  EXPECT_EQ(run(Words{"get", "jobs", "-l", "app=other"} + kSpace).err, "No resources found in kubeflow namespace.\n");
  expect_contains(out({"get", "jobs", "-A", "--no-headers"}), "kubeflow   mnist   Succeeded   ");
  expect_contains(out({"get", "events", "-A", "-o", "yaml"}), "reason: JAXJobSucceeded\n");
  EXPECT_EQ(run(Words{"get", "jobs.batch"} + kSpace).err, "No resources found in kubeflow namespace.\n");
}

TEST_F(Jobs, FailureIsShownByEveryCommand) {
  // Only one replica fails: if both did, the faster one could end the job before the other starts.
  const std::string command = "[ $PROCESS_ID = 0 ] || exec sleep 1000; echo what went wrong; exit 3";
  start("bad", command);
  const RunningProgram::Result waited = wait_for("condition=Succeeded", "bad");
  EXPECT_EQ(waited.exit_code, 1);
  EXPECT_TRUE(
      waited.err.starts_with("lockstep: wait: jaxjobs/bad has already ended as Failed and can no longer reach "
                             "Succeeded: JAXJob bad is failed because "))
      << waited.err;
  EXPECT_EQ(wait_for("condition=Failed", "bad").exit_code, 0);
  const std::string wide = out(Words{"get", "pods", "-o", "wide"} + kSpace);
  expect_contains(wide, "NODE");
  expect_contains(wide, "EXIT CODE\n");
  const std::string all = out(Words{"describe", "bad"} + kSpace);
  expect_contains(all, "  Command:            sh -c '" + command + "'\n");
  for (const char* part : {"State:                Failed\n", "what went wrong\n", "Failed    True     JAXJobFailed",
                           "Events:\n", "bad-worker-0"})
    expect_contains(all, part);
  for (const char* name : {"bad-worker-0", "pod/bad-worker-0"}) {
    const std::string pod = out(Words{"describe", name} + kSpace);
    expect_contains(pod, "Controlled by:        JAXJob/bad\n");
    expect_contains(pod, "Last line:            what went wrong\n");
  }
  expect_contains(out(Words{"events", "bad"} + kSpace), "Warning   JAXJobFailed");
  expect_error(Words{"suspend", "bad"} + kSpace,
               "suspend: bad has already ended as Failed; to run it again, delete it and apply it again");
}

TEST_F(Jobs, RestartsKeepThePreviousLog) {
  const std::string mark = path("mark");
  start("twice",
        "if [ $PROCESS_ID = 1 ] || [ -e " + mark + " ]; then echo second; else touch " + mark +
            "; echo first; exit 9; fi",
        "OnFailure");
  EXPECT_EQ(wait_for("condition=Succeeded", "twice").exit_code, 0);
  EXPECT_EQ(out(Words{"logs", "twice"} + kSpace), "second\n");
  EXPECT_EQ(out(Words{"logs", "twice", "-p"} + kSpace), "first\n");
  expect_contains(out(Words{"get", "pods"} + kSpace), "0/1     Completed   1 (");
}

TEST_F(Jobs, SuspendedJobsAreResumed) {
  start("long", "exec sleep 1000");
  EXPECT_EQ(wait_for("condition=Running", "long").exit_code, 0);
  EXPECT_EQ(out(Words{"suspend", "jaxjobs/long"} + kSpace), "jaxjob.kubeflow.org/long suspended\n");
  EXPECT_EQ(wait_for("condition=Suspended", "long").exit_code, 0);
  EXPECT_EQ(out(Words{"suspend", "long"} + kSpace), "jaxjob.kubeflow.org/long unchanged\n");
  for (int i = 0; i < 500 && !out(Words{"get", "pods"} + kSpace).empty(); ++i)
    continue;  // until the replicas have ended
  expect_error(Words{"describe", "pod/long-worker-0"} + kSpace,
               "describe: long-worker-0 is not running now; `lockstep describe long` shows why");
  EXPECT_EQ(out(Words{"resume", "long"} + kSpace), "jaxjob.kubeflow.org/long resumed\n");
  EXPECT_EQ(wait_for("condition=Running", "long").exit_code, 0);

  const RunningProgram::Result late =
      run(Words{"wait", "--for", "condition=Succeeded", "long", "--timeout", "100ms"} + kSpace);
  EXPECT_EQ(late.exit_code, 1);
  EXPECT_EQ(late.err, "error: timed out waiting for the condition on jaxjobs/long\n");

  start("other", "exit 0");
  RunningProgram watcher(Words{program_path(), "wait", "--for=delete", "long", "--timeout", "60s"} + kSpace);
  RunningProgram hopeful(
      {"sh", "-c",
       "exec '" + program_path() + "' wait --for=condition=Succeeded long other -n kubeflow --timeout 60s >&2"});
  EXPECT_TRUE(hopeful.says("jaxjob.kubeflow.org/other condition met\n"));
  EXPECT_EQ(out({"delete", "-f", path("long.yaml")}), "jaxjob.kubeflow.org \"long\" deleted from kubeflow namespace\n");
  EXPECT_EQ(watcher.wait().exit_code, 0);
  const RunningProgram::Result disappointed = hopeful.wait();
  EXPECT_EQ(disappointed.exit_code, 1);
  EXPECT_TRUE(disappointed.err.ends_with("lockstep: wait: jaxjobs/long was deleted\n")) << disappointed.err;
  EXPECT_EQ(wait_for("delete", "long").exit_code, 0);
}

TEST_F(Jobs, WatchingPrintsALineForEveryChange) {
  start("quick", "exec sleep 1000");
  EXPECT_EQ(wait_for("condition=Running", "quick").exit_code, 0);
  // says() reads standard error.
  const std::string words = "exec '" + program_path() + "' get -n kubeflow -w --timeout 60s ";
  RunningProgram jobs({"sh", "-c", words + "jobs >&2"}), pods({"sh", "-c", words + "pods -o name quick-worker-0 >&2"});
  EXPECT_TRUE(jobs.says("NAME    STATE     AGE\nquick   Running   "));
  EXPECT_TRUE(pods.says("pod/quick-worker-0\n"));
  EXPECT_EQ(out(Words{"suspend", "quick"} + kSpace), "jaxjob.kubeflow.org/quick suspended\n");
  EXPECT_TRUE(jobs.says("\nquick   Suspended   "));
  EXPECT_EQ(lines_of(jobs.err()).size(), 3u) << jobs.err();
  EXPECT_EQ(out(Words{"resume", "quick"} + kSpace), "jaxjob.kubeflow.org/quick resumed\n");
  EXPECT_TRUE(pods.says("pod/quick-worker-0\npod/quick-worker-0\n"));
  EXPECT_EQ(wait_for("condition=Running", "quick").exit_code, 0);
  EXPECT_EQ(lines_of(out(Words{"get", "jobs", "-w", "--timeout", "10ms", "--no-headers"} + kSpace)).size(), 1u);
}

TEST_F(Jobs, ApplyAgainIsUnchangedOrConfigured) {
  start("steady", "exec sleep 1000");
  EXPECT_EQ(out({"apply", "-f", path("steady.yaml")}), "jaxjob.kubeflow.org/steady unchanged\n");
  EXPECT_EQ(out({"apply", "-f", manifest("steady", "exec sleep 1000", "OnFailure")}),
            "jaxjob.kubeflow.org/steady configured\n");
  const RunningProgram::Result other = run({"apply", "-f", manifest("steady", "exec sleep 2000", "OnFailure")});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_TRUE(other.err.find("steady") != std::string::npos) << other.err;
}

TEST_F(Jobs, ManifestsAreReadFromFilesFoldersAndPipes) {
  const std::string folder = path("jobs");
  FileSystem::real().make_dirs(folder);
  FileSystem::real().rename(manifest("one", "exit 0"), folder + "/1.yaml");
  FileSystem::real().rename(manifest("two", "exit 0"), folder + "/2.yml");
  FileSystem::real().write(folder + "/notes.txt", {});
  const std::string third = manifest("three", "exit 0");
  EXPECT_EQ(out({"apply", "--dry-run", "-f", folder, "-f", third}),
            "jaxjob.kubeflow.org/one is valid (dry run)\njaxjob.kubeflow.org/two is valid (dry run)\n"
            "jaxjob.kubeflow.org/three is valid (dry run)\n");
  const ProcessResult piped = run_process(
      {"sh", "-c", "'" + program_path() + "' apply --dry-run -f - < '" + third + "'"}, std::chrono::seconds(60));
  EXPECT_EQ(piped.output, "jaxjob.kubeflow.org/three is valid (dry run)\n");
  EXPECT_EQ(run({"get", "jobs", "-A"}).out, "");
  expect_error(
      {"apply", "-f", "https://example.com/job.yaml"},
      "apply: https://example.com/job.yaml is a URL, but manifests are read from files; download it first: curl -LO "
      "https://example.com/job.yaml",
      2);
  expect_error({"apply", "-f", third, "-n", "other"},
               "apply: the manifest of three has namespace kubeflow, but -n is other; omit one of them", 2);
  FileSystem::real().make_dirs(path("empty"));
  expect_error({"apply", "-f", path("empty")},
               "apply: " + path("empty") + " contains no .yaml, .yml or .json file; check the path", 2);
  const RunningProgram::Result missing = run({"apply", "-f", path("none.yaml")});
  EXPECT_EQ(missing.exit_code, 2);
  expect_contains(missing.err, "none.yaml: No such file or directory");
}

TEST_F(Jobs, ManifestWithOnlyAnImageTrains) {
  const std::string text =
      "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata:\n  name: jaxjob-mnist\n  namespace: kubeflow\nspec:\n"
      "  jaxReplicaSpecs:\n    Worker:\n      replicas: 2\n      restartPolicy: OnFailure\n      template:\n"
      "        spec:\n          containers:\n            - name: jax\n              image: example/mnist:latest\n"
      "              imagePullPolicy: Always\n";
  FileSystem::real().write(path("job.yaml"), std::vector<uint8_t>(text.begin(), text.end()));
  const RunningProgram::Result applied = run({"apply", "-f", path("job.yaml")});
  EXPECT_EQ(applied.out, "jaxjob.kubeflow.org/jaxjob-mnist created\n");
  EXPECT_EQ(applied.err,
            "lockstep: note: the image example/mnist:latest is ignored: replicas are processes on this machine, "
            "and without a command they run `lockstep train`\n");
  EXPECT_EQ(wait_for("condition=Running", "jaxjob-mnist").exit_code, 0);
  expect_contains(out(Words{"describe", "jaxjob-mnist"} + kSpace), "  Command:            lockstep train\n");
#ifdef LOCKSTEP_WITH_GRPC  // two processes need the control plane
  if (run_lockstep({"data", "verify", "mnist"}).exit_code == 0) {
    RunningProgram follower({"sh", "-c", "exec '" + program_path() + "' logs -f jaxjob-mnist -n kubeflow >&2"});
    EXPECT_TRUE(follower.says("training   4690 steps: 10 epochs of 469 steps, ")) << follower.err();
  }
#endif
}

TEST_F(Jobs, UnknownNamesGetSuggestions) {
  start("mnist", "exit 0");
  expect_error({"logs", "mnist"},
               "job \"mnist\" not found in namespace default; it exists in namespace kubeflow: add -n kubeflow");
  expect_error({"logs", "pod/mnist-worker-0"},
               "pod \"mnist-worker-0\" not found in namespace default; it exists in namespace kubeflow: add -n "
               "kubeflow");
  const RunningProgram::Result job = run(Words{"describe", "mnits"} + kSpace);
  EXPECT_EQ(job.exit_code, 1);
  expect_contains(job.err, "did you mean \"mnist\"?");
  expect_error(Words{"logs", "pod/mnist-worker-9"} + kSpace,
               "pod \"mnist-worker-9\" not found in namespace kubeflow; did you mean \"mnist-worker-0\"?");
  expect_error(Words{"get", "pods", "xyzzy"} + kSpace,
               "pod \"xyzzy\" not found in namespace kubeflow; `lockstep get pods -A` lists all pods");
  expect_error(Words{"logs", "mnist", "--replica", "2"} + kSpace,
               "logs: mnist has no replica 2; give a number from 0 to 1");
  expect_error(Words{"logs", "mnist-worker-1", "--replica", "0"} + kSpace,
               "logs: mnist-worker-1 is replica 1, but --replica is 0; omit --replica", 2);
  expect_error(Words{"wait", "--for=condition=Succeeded", "-l", "app=other"} + kSpace,
               "wait: no job with labels app=other found in namespace kubeflow");
  expect_error(Words{"describe", "jobs.batch/mnist"} + kSpace, "mnist is a JAXJob; write job/mnist");
  EXPECT_EQ(run(Words{"delete", "none", "--ignore-not-found"} + kSpace).exit_code, 0);
  EXPECT_EQ(run(Words{"delete", "none"} + kSpace).exit_code, 1);
}

}  // namespace
}  // namespace lockstep
