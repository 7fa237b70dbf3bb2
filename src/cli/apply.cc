#include <fmt/format.h>

#include <memory>

#include "base/print_stderr.h"
#include "cli/apply_jobs.h"
#include "cli/command.h"
#include "cli/job_files.h"
#include "command/choice_check.h"
#include "command/help.h"
#include "jobs/kubernetes/kubectl.h"
#include "jobs/show.h"

namespace lockstep::cli {
namespace {

struct ApplyArguments {
  JobFlags flags;
  std::vector<std::string> files;
  std::string dry_run;  // "auto", "client" or "server"; empty: not a dry run
};

// Checks the manifests without starting anything: on a cluster by its API server, unless only "client" is asked.
int dry_run(const ApplyArguments& arguments, const JobFiles& files) {
  const bool on_cluster = runner_name(arguments.flags) == "kubernetes";
  if (arguments.dry_run == "server" && !on_cluster)
    throw UsageError(fmt::format("apply: --dry-run=server needs an API server, but jobs run on {}; add --on kubernetes",
                                 runner_name(arguments.flags)));
  if (!on_cluster || arguments.dry_run == "client") {
    for (const OtherObject& each : files.others)
      if (on_cluster)
        print_stderr("lockstep: note: {} \"{}\" is not checked: kubectl applies it\n", each.kind, each.name);
    for (const Job& job : files.jobs) fmt::print("{} is valid (dry run)\n", full_name(job));
    return kDone;
  }
  const auto check = [](const nlohmann::ordered_json& object, const std::string& namespace_name) {
    fmt::print("{}\n", kubectl::apply_object(object, namespace_name, kubectl::ApplyMode::server_dry_run));
    std::fflush(stdout);
  };
  for (const OtherObject& each : files.others) check(each.value, each.namespace_name);
  for (const Job& job : files.jobs) check(job.manifest, job.namespace_name);
  return kDone;
}

int apply(const ApplyArguments& arguments) {
  const JobFiles files = read_jobs("apply", arguments.files, arguments.flags);
  if (runner_name(arguments.flags) != "kubernetes")
    for (const std::string& each : files.notes) print_stderr("lockstep: note: {}\n", each);
  if (!arguments.dry_run.empty()) return dry_run(arguments, files);
  const std::unique_ptr<Runner> runner = runner_for(arguments.flags);
  apply_jobs(*runner, arguments.flags, files,
             [](std::string_view text) { print_stderr("lockstep: note: {}\n", text); });
  return kDone;
}

}  // namespace

void add_apply_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("apply", "create or update the jobs of manifests (JAXJob, Indexed Job)");
  auto arguments = std::make_shared<ApplyArguments>();
  add_files_flag(*command, arguments->files)->required();
  add_job_flags(*command, arguments->flags);
  add_runtime_flags(*command, arguments->flags.runtime, {SettingGroup::logs});
  command
      ->add_option("--dry-run", arguments->dry_run,
                   "check the manifests without starting anything: by the API server of Kubernetes (server; auto, if "
                   "jobs run there), or only here (client)")
      ->expected(0, 1)
      ->default_str("auto")
      ->check(one_of({"auto", "client", "server"}));
  add_examples(*command, {"lockstep apply -f job.yaml", "lockstep apply -f jobs/ --on slurm"});
  command->callback([arguments, &action] { action = [arguments] { return apply(*arguments); }; });
}

}  // namespace lockstep::cli
