// What the commands about jobs say about wrong command lines.
#include "base/file.h"
#include "support/program.h"
#include "support/variable.h"

namespace lockstep {
namespace {

std::string help(const std::string& command) { return "; `lockstep " + command + " --help` shows what there is"; }

TEST(JobCommands, WrongCommandLinesSayWhatToDo) {
  expect_usage_error({"get", "podz"},
                     "get: there is no resource \"podz\"; did you mean \"pods\"? choose jobs, jaxjobs, pods or events");
  expect_usage_error({"get", "podz/x"},
                     "get: there is no resource \"podz\"; did you mean \"pods\"? choose jobs, jaxjobs, pods or events");
  expect_usage_error({"get", "pod/"}, "get: \"pod/\" has no name; write one after the /");
  expect_usage_error({"get", "job/a", "pod/b"},
                     "get: several resources at once; ask for jobs, pods and events one after the other");
  expect_usage_error({"get", "job/a", "pods"},
                     "get: several resources at once; ask for jobs, pods and events one after the other");
  expect_usage_error({"logs", "a", "--tail", "-5"},
                     "logs: --tail: \"-5\" is not a whole number from 0 to 2147483647" + help("logs"));
  expect_usage_error({"get", "jobs,pods"},
                     "get: several resources at once; ask for jobs, pods and events one after the other");
  expect_usage_error({"get", "jobs", "-w", "-o", "yaml"},
                     "get: -w prints a line for each change, and -o yaml is not made of lines; leave one of them out");
  expect_usage_error({"get", "jobs", "--timeout", "soon"},
                     "get: --timeout: \"soon\" is not a time such as 60s, 1m30s or 2h" + help("get"));
  for (const char* wrong : {"-1", "4096", "first"})
    expect_usage_error({"logs", "a", "--replica", wrong}, "logs: --replica: \"" + std::string(wrong) +
                                                              "\" is not a whole number from 0 to 4095" + help("logs"));
  expect_usage_error({"logs", "pods"}, "logs: \"pods\" is no job and no pod; write the name of one");
  expect_usage_error({"describe", "events"}, "describe: events describe themselves; write `lockstep events`");
  expect_usage_error({"events", "pod/a-worker-0"},
                     "events: they are kept by job; name a job, or write `lockstep describe pod/NAME`");
  expect_usage_error({"wait", "a", "--for", "success"},
                     "wait: --for \"success\" is neither condition=TYPE nor delete; write --for=condition=Succeeded");
  expect_usage_error({"wait", "a", "--for", "condition=Suceeded"},
                     "wait: there is no condition \"Suceeded\"; did you mean \"Succeeded\"? choose Created, Running, "
                     "Restarting, Suspended, Succeeded or Failed");
  expect_usage_error({"wait", "a", "--for", "condition=Failed=maybe"},
                     "wait: --for: a condition is True or False, and not \"maybe\"");
  expect_usage_error({"delete"}, "delete: which jobs? write their names, -f FILE, -l LABELS or --all");
  expect_usage_error({"delete", "a", "--all"}, "delete: names together with --all or -l; leave one of them out");
  expect_usage_error({"delete", "pod/a-worker-0"},
                     "delete: a job's replicas live and end together; delete the job, or suspend it");
}

TEST(JobCommands, NamespacesHaveTheNamesOfManifests) {
  const std::vector<Words> commands = {
      {"apply", "-f", "job.yaml"},   {"get", "jobs"},  {"logs", "a"},   {"describe", "a"}, {"events"},
      {"wait", "a", "--for=delete"}, {"suspend", "a"}, {"resume", "a"}, {"delete", "a"}};
  for (const Words& command : commands)
    for (const std::string wrong : {"../../evil", "a/b", "Team", ""})
      expect_usage_error(command + Words{"-n", wrong},
                         command[0] + ": --namespace: \"" + wrong +
                             "\" is not a DNS-1123 label; use lowercase letters, digits and -, begin and end with a letter or "
                             "digit, at most 63 characters" +
                             help(command[0]));
}

// Slurm's programs are installed, and no controller runs.
TEST(JobCommands, ASlurmThatDoesNotAnswerIsNoEmptyList) {
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
            "lockstep: slurm: its controller does not answer: slurm_load_jobs error: Unable to contact slurm "
            "controller; `scontrol ping` shows whether it runs, and --on local is this machine\n");
}

TEST(JobCommands, JobsMustBeNamed) {
  const std::string shows = "write its name; `lockstep get jobs -A` shows those that there are";
  expect_usage_error({"suspend", "jobs"}, "suspend: which job? " + shows);
  expect_usage_error({"resume", "pods", "a"}, "resume: pods are what jobs have; name a job");
  expect_usage_error({"wait", "--for=delete", "a", "--all"},
                     "wait: names together with --all or -l; leave one of them out");
}

TEST(JobCommands, PlacesAreKnown) {
  {
    const ScopedVariable on("LOCKSTEP_ON", "slrum");
    expect_usage_error(
        {"get", "jobs"},
        "LOCKSTEP_ON: \"slrum\" is no place to run jobs; did you mean \"slurm\"? choose local, slurm or kubernetes");
  }
  EXPECT_EQ(run_lockstep({"get", "jobs", "--on", "mars"}).exit_code, 2);
}

TEST(JobCommands, HelpShowsAnExample) {
  for (const char* command : {"apply", "get", "logs", "describe", "events", "wait", "suspend", "resume", "delete"})
    EXPECT_NE(run_lockstep({command, "--help"}).output.find("Example: lockstep " + std::string(command)),
              std::string::npos)
        << command;
}

TEST(JobCommands, HelpGroupsCommands) {
  const std::string text = run_lockstep({"--help"}).output;
  size_t last = 0;
  for (const char* title : {"\nTraining:\n  train", "\nJobs:\n  launch", "\nLooking:\n  devices", "\nProgram:\n"}) {
    const size_t at = text.find(title);
    ASSERT_NE(at, std::string::npos) << title << text;
    EXPECT_GT(at, last);
    last = at;
  }
}

}  // namespace
}  // namespace lockstep
