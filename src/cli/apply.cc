#include <fmt/format.h>

#include <memory>

#include "base/print_stderr.h"
#include "cli/command.h"
#include "cli/job_files.h"
#include "command/help.h"
#include "jobs/kubernetes/kubectl.h"
#include "jobs/show.h"

namespace lockstep::cli {
namespace {

struct ApplyArguments {
  JobFlags flags;
  std::vector<std::string> files;
  bool dry_run = false;
};

int apply(const ApplyArguments& arguments) {
  const JobFiles files = read_jobs("apply", arguments.files, arguments.flags);
  const auto note = [](std::string_view text) { print_stderr("lockstep: note: {}\n", text); };
  const bool on_cluster = runner_name(arguments.flags) == "kubernetes";
  if (!on_cluster)
    for (const std::string& each : files.notes) note(each);
  if (arguments.dry_run) {
    for (const OtherObject& each : files.others)
      if (on_cluster) note(fmt::format("{} \"{}\" is not checked: kubectl applies it", each.kind, each.name));
    for (const Job& job : files.jobs) fmt::print("{} is valid (dry run)\n", full_name(job));
    return kDone;
  }
  const std::unique_ptr<Runner> runner = runner_for(arguments.flags);
  // Jobs come last because they use the other objects, such as a ConfigMap or Secret.
  for (const OtherObject& each : files.others) {
    if (!on_cluster) break;
    fmt::print("{}\n", kubectl::apply_object(each.value, each.namespace_name));
    std::fflush(stdout);
  }
  for (const Job& job : files.jobs) {
    const std::string done = runner->apply(job, note);
    fmt::print("{} {}\n", full_name(job), done);
    std::fflush(stdout);
  }
  return kDone;
}

}  // namespace

void add_apply_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("apply", "create or update the jobs of manifests (JAXJob, Indexed Job)");
  auto arguments = std::make_shared<ApplyArguments>();
  add_files_flag(*command, arguments->files)->required();
  add_job_flags(*command, arguments->flags);
  add_runtime_flags(*command, arguments->flags.runtime, {SettingGroup::logs});
  command->add_flag("--dry-run", arguments->dry_run, "check the manifests without starting anything");
  add_examples(*command, {"lockstep apply -f job.yaml", "lockstep apply -f jobs/ --on slurm"});
  command->callback([arguments, &action] { action = [arguments] { return apply(*arguments); }; });
}

}  // namespace lockstep::cli
