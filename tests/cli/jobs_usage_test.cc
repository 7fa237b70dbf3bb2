// Messages of the job commands about wrong command lines.
#include "base/file.h"
#include "support/program.h"
#include "support/variable.h"

namespace lockstep {
namespace {

std::string help(const std::string& command) { return "; see `lockstep " + command + " --help`"; }

TEST(JobCommands, WrongCommandLinesNameTheRemedy) {
  expect_usage_error({"get", "podz"},
                     "get: unknown resource \"podz\"; did you mean \"pods\"? choose jobs, jaxjobs, pods or events");
  expect_usage_error({"get", "podz/x"},
                     "get: unknown resource \"podz\"; did you mean \"pods\"? choose jobs, jaxjobs, pods or events");
  expect_usage_error({"get", "pod/"}, "get: \"pod/\" has no name; add one after the /");
  for (const char* second : {"pod/b", "pods"})
    expect_usage_error({"get", "job/a", second},
                       "get: objects of several resources cannot be listed by name; run `lockstep get` once for each");
  expect_usage_error({"get", "jobs", "pods"}, "get: separate resources with commas, such as `lockstep get jobs,pods`");
  expect_usage_error({"logs", "a", "--tail", "-5"},
                     "logs: --tail: \"-5\" is not a whole number from 0 to 2147483647" + help("logs"));
  expect_usage_error({"get", "jobs,podz"},
                     "get: unknown resource \"podz\"; did you mean \"pods\"? choose jobs, jaxjobs, pods or events");
  expect_usage_error({"get", "jobs,pods", "a"},
                     "get: \"a\" cannot follow jobs,pods; give names after a single resource, or write job/NAME");
  expect_usage_error({"get", "all", "-w"}, "get: -w shows a single resource; give one of jobs, pods and events");
  expect_usage_error({"get", "jobs", "-o", "jsn"},
                     "get: --output: \"jsn\" is not one of wide, yaml, json, name, jsonpath=TEMPLATE, "
                     "custom-columns=COLUMNS; did you mean \"json\"? see `lockstep get --help`");
  expect_usage_error({"get", "jobs", "-o", "jsonpath={.items"},
                     "jsonpath: a { is not closed at character 8 of \"{.items\"; write a template such as "
                     "{.items[*].metadata.name}");
  expect_usage_error({"get", "jobs", "-o", "custom-columns=NAME"},
                     "custom-columns: \"NAME\" is not HEADER:PATH; write columns such as NAME:.metadata.name");
  expect_usage_error({"get", "jobs", "-w", "-o", "yaml"}, "get: -w cannot be combined with -o yaml; omit one of them");
  expect_usage_error({"get", "jobs", "--timeout", "soon"},
                     "get: --timeout: \"soon\" is not a time such as 60s, 1m30s or 2h" + help("get"));
  for (const char* wrong : {"-1", "4096", "first"})
    expect_usage_error({"logs", "a", "--replica", wrong}, "logs: --replica: \"" + std::string(wrong) +
                                                              "\" is not a whole number from 0 to 4095" + help("logs"));
  expect_usage_error({"logs", "pods"}, "logs: \"pods\" is not a job or pod; give the name of one");
  expect_usage_error({"describe", "events"}, "describe: events have no description; use `lockstep events`");
  expect_usage_error({"events", "pod/a-worker-0"},
                     "events: events belong to jobs; give a job, or use `lockstep describe pod/NAME`");
  expect_usage_error({"wait", "a", "--for", "success"},
                     "wait: --for: \"success\" is not condition=TYPE or delete; use --for=condition=Succeeded");
  expect_usage_error({"wait", "a", "--for", "condition=Suceeded"},
                     "wait: unknown condition \"Suceeded\"; did you mean \"Succeeded\"? choose Created, Running, "
                     "Restarting, Suspended, Succeeded or Failed");
  expect_usage_error({"wait", "a", "--for", "condition=Failed=maybe"}, "wait: --for: \"maybe\" is not True or False");
  expect_usage_error({"delete"}, "delete: no jobs selected; give names, -f FILE, -l LABELS or --all");
  expect_usage_error({"delete", "a", "--all"}, "delete: names cannot be combined with --all or -l; use one of them");
  expect_usage_error({"delete", "pod/a-worker-0"},
                     "delete: a single replica cannot be deleted; delete or suspend its job");
}

TEST(JobCommands, NamespacesMustBeDnsLabels) {
  const std::vector<Words> commands = {
      {"apply", "-f", "job.yaml"},   {"get", "jobs"},  {"logs", "a"},   {"describe", "a"}, {"events"},
      {"wait", "a", "--for=delete"}, {"suspend", "a"}, {"resume", "a"}, {"delete", "a"}};
  const auto expect_rejected = [](const Words& command, const std::string& wrong) {
    expect_usage_error(command + Words{"-n", wrong},
                       command[0] + ": --namespace: \"" + wrong +
                           "\" is not a DNS-1123 label; use lowercase letters, digits and -, begin and end with a "
                           "letter or digit, at most 63 characters" +
                           help(command[0]));
  };
  for (const Words& command : commands) expect_rejected(command, "../../evil");
  for (const char* const wrong : {"a/b", "Team", ""}) expect_rejected(commands[0], wrong);
}

// Slurm's programs are installed, but no controller runs.
TEST(JobCommands, UnreachableSlurmIsAnError) {
  const TempDir dir;
  for (const char* name : {"sbatch", "scontrol", "squeue", "scancel"}) {
    const std::string path = dir.path() + "/" + name;
    std::ofstream(path) << "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2\nexit 1\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  const RunningProgram::Result result =
      RunningProgram({"/usr/bin/env", "PATH=" + dir.path() + ":/usr/bin:/bin", "LOCKSTEP_STATE_DIR=" + dir.path(),
                      program_path(), "get", "jobs", "--on", "slurm"})
          .wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err,
            "lockstep: slurm: the controller does not respond: slurm_load_jobs error: Unable to contact slurm "
            "controller; check it with `scontrol ping`, or use --on local to run on this machine\n");
}

TEST(JobCommands, JobsMustBeNamed) {
  const std::string shows = "give its name; `lockstep get jobs -A` lists all jobs";
  expect_usage_error({"suspend", "jobs"}, "suspend: no job given; " + shows);
  expect_usage_error({"resume", "pods", "a"}, "resume: pods cannot be given here; give the name of a job");
  expect_usage_error({"wait", "--for=delete", "a", "--all"},
                     "wait: names cannot be combined with --all or -l; use one of them");
}

TEST(JobCommands, UnknownRunnersAreRejected) {
  {
    const ScopedVariable on("LOCKSTEP_ON", "slrum");
    expect_usage_error(
        {"get", "jobs"},
        "LOCKSTEP_ON: unknown runner \"slrum\"; did you mean \"slurm\"? choose local, slurm or kubernetes");
  }
  EXPECT_EQ(run_lockstep({"get", "jobs", "--on", "mars"}).exit_code, 2);
}

TEST(JobCommands, HelpGroupsCommands) {
  const std::string text = run_lockstep({"--help"}).output;
  size_t last = 0;
  for (const char* title : {"\nTraining:\n  train", "\nJobs:\n  launch", "\nDiagnostics:\n  devices", "\nProgram:\n"}) {
    const size_t at = text.find(title);
    ASSERT_NE(at, std::string::npos) << title << text;
    EXPECT_GT(at, last);
    last = at;
  }
}

}  // namespace
}  // namespace lockstep
