#include <fmt/format.h>

#include <memory>

#include "base/check.h"
#include "cli/command.h"
#include "cli/job_flags.h"
#include "command/help.h"
#include "jobs/show.h"

namespace lockstep::cli {
namespace {

struct SuspendArguments {
  JobFlags flags;
  std::vector<std::string> words;
};

int set_suspend(const SuspendArguments& arguments, bool suspend) {
  const char* const command = suspend ? "suspend" : "resume";
  const std::unique_ptr<Runner> runner = runner_for(arguments.flags);
  const std::vector<Job> jobs = find_jobs(*runner, arguments.flags, command, arguments.words);
  for (const Job& job : jobs)
    if (is_finished(job))
      throw_error("{}: {} has already ended as {}; to run it again, delete it and apply it again", command, job.name,
                  job_state(job));
  for (const Job& job : jobs) {
    if (job.spec.suspend != suspend) runner->set_suspend(job, suspend);
    fmt::print("{} {}\n", full_name(job),
               job.spec.suspend == suspend ? "unchanged"
               : suspend                   ? "suspended"
                                           : "resumed");
  }
  return kDone;
}

void add_command(CLI::App& program, Action& action, bool suspend) {
  CLI::App* command =
      suspend ? program.add_subcommand("suspend", "stop the replicas of a job but keep the job, to be resumed later")
              : program.add_subcommand("resume", "restart the replicas of a suspended job");
  auto arguments = std::make_shared<SuspendArguments>();
  command->add_option("JOB", arguments->words, "names of jobs")->required()->type_name("");
  add_job_flags(*command, arguments->flags);
  const std::string name = suspend ? "suspend" : "resume";
  add_examples(*command, {"lockstep " + name + " mnist", "lockstep " + name + " mnist -n team --on slurm"});
  command->callback(
      [arguments, suspend, &action] { action = [arguments, suspend] { return set_suspend(*arguments, suspend); }; });
}

}  // namespace

void add_suspend_command(CLI::App& program, Action& action) { add_command(program, action, true); }
void add_resume_command(CLI::App& program, Action& action) { add_command(program, action, false); }

}  // namespace lockstep::cli
