#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/print_stderr.h"
#include "cli/command.h"
#include "cli/job_files.h"
#include "command/help.h"
#include "jobs/kubernetes/kubectl.h"
#include "jobs/kubernetes/required_objects.h"
#include "jobs/selector.h"
#include "jobs/show.h"
#include "lockstep/error.h"

namespace lockstep::cli {
namespace {

struct DeleteArguments {
  JobFlags flags;
  std::vector<std::string> words, files;
  std::string selector;
  bool all = false, ignore_not_found = false;
};

// A job to delete, by name.
struct NamedJob {
  ResourceArgument asked;
  std::string namespace_name;  // its namespace; empty: that of the flags
};

std::vector<NamedJob> names_of(const DeleteArguments& arguments, const JobFiles& files) {
  std::vector<NamedJob> out;
  for (const ResourceArgument& asked : parse_resource_arguments("delete", arguments.words)) {
    if (asked.resource != Resource::jobs)
      throw UsageError("delete: a single replica cannot be deleted; delete or suspend its job");
    if (!asked.name.empty()) out.push_back({asked, arguments.flags.namespace_name});
  }
  for (const Job& job : files.jobs) out.push_back({{Resource::jobs, job.kind, job.name}, job.namespace_name});
  return out;
}

void remove(Runner& runner, const Job& job) {
  runner.remove(job);
  const std::string name = full_name(job);
  fmt::print("{} \"{}\" deleted from {} namespace\n", name.substr(0, name.find('/')), job.name, job.namespace_name);
  std::fflush(stdout);
}

void remove_many(Runner& runner, const DeleteArguments& arguments) {
  const Selector selector = Selector::parse(arguments.selector);
  const std::vector<ResourceArgument> asked = parse_resource_arguments("delete", arguments.words);
  std::vector<Job> jobs;
  for (const Job& job : runner.list(arguments.flags.list_namespace(), asked.empty() ? std::nullopt : asked[0].kind))
    if (selector.matches(job.labels) && (asked.empty() || has_kind(job, asked[0]))) jobs.push_back(job);
  if (jobs.empty()) print_none_found(arguments.flags);
  for (const Job& job : jobs) remove(runner, job);
}

std::vector<Job> find_named(Runner& runner, const DeleteArguments& arguments, const std::vector<NamedJob>& named,
                            std::vector<std::string>& missing) {
  std::vector<Job> out;
  for (const auto& [asked, namespace_name] : named) {
    JobFlags flags = arguments.flags;
    flags.namespace_name = namespace_name;
    if (arguments.ignore_not_found) {
      const std::vector<Job> all = runner.list(flags.lookup_namespace(), asked.kind);
      const auto is_it = [&wanted = asked](const Job& job) { return job.name == wanted.name && has_kind(job, wanted); };
      if (std::none_of(all.begin(), all.end(), is_it)) continue;
    }
    try {
      out.push_back(find_job(runner, flags, asked));
    } catch (const Error& error) {
      // With -f the other objects are still deleted. With names, one wrong name deletes nothing.
      if (arguments.files.empty()) throw;
      missing.push_back(error.what());
    }
  }
  return out;
}

int delete_jobs(const DeleteArguments& arguments) {
  const JobFiles files = arguments.files.empty() ? JobFiles() : read_jobs("delete", arguments.files, arguments.flags);
  const bool on_cluster = runner_name(arguments.flags) == "kubernetes";
  const std::vector<NamedJob> named = names_of(arguments, files);
  const bool many = arguments.all || !arguments.selector.empty(), others = on_cluster && !files.others.empty();
  if (many && (!named.empty() || others))
    throw UsageError("delete: names cannot be combined with --all or -l; use one of them");
  if (!many && named.empty() && !others && !files.others.empty())
    throw UsageError("delete: the files of -f contain no job, and other objects exist only on Kubernetes");
  if (!many && named.empty() && !others)
    throw UsageError("delete: no jobs selected; give names, -f FILE, -l LABELS or --all");
  const std::unique_ptr<Runner> runner = runner_for(arguments.flags);
  if (many) {
    remove_many(*runner, arguments);
    return kDone;
  }
  std::vector<std::string> missing;
  const std::vector<Job> jobs = find_named(*runner, arguments, named, missing);
  for (const Job& job : jobs) remove(*runner, job);
  // Objects that were rendered with a job were deleted with it.
  const auto is_gone = [&](const OtherObject& object) {
    return std::ranges::any_of(jobs, [&](const Job& job) {
      return object.namespace_name == job.namespace_name && is_rendered_for(object.value, job.name);
    });
  };
  // In reverse order: the jobs, whose pods use these objects, were deleted above, and Namespaces come last.
  for (auto each = files.others.rbegin(); others && each != files.others.rend(); ++each) {
    try {
      const std::string done =
          kubectl::delete_object(each->value, each->namespace_name, arguments.ignore_not_found || is_gone(*each));
      if (!done.empty()) fmt::print("{}\n", done);
    } catch (const RunnerUnreachable&) {
      throw;
    } catch (const IoError& error) {
      missing.emplace_back(error.what());
    }
    std::fflush(stdout);
  }
  for (const std::string& each : missing) print_stderr("lockstep: {}\n", each);
  return missing.empty() ? kDone : kFailed;
}

}  // namespace

void add_delete_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("delete", "stop jobs and delete them with their logs");
  auto arguments = std::make_shared<DeleteArguments>();
  command->add_option("JOB", arguments->words, "names of jobs")->type_name("");
  add_files_flag(*command, arguments->files);
  command->add_option("-l,--selector", arguments->selector, "jobs with these labels, such as app=x,tier!=y")
      ->type_name("LABELS")
      ->check(label_selector());
  command->add_flag("--all", arguments->all, "all jobs of the namespace");
  command->add_flag("--ignore-not-found", arguments->ignore_not_found, "do not fail if a job does not exist");
  add_job_flags(*command, arguments->flags, true);
  add_examples(*command, {"lockstep delete mnist", "lockstep delete -f job.yaml --ignore-not-found"});
  command->callback([arguments, &action] { action = [arguments] { return delete_jobs(*arguments); }; });
}

}  // namespace lockstep::cli
