#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/job_files.h"
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

// Those meant by names and files, in this order.
std::vector<Asked> names_of(const DeleteArguments& arguments, std::vector<std::string>& spaces) {
  std::vector<Asked> out;
  for (const Asked& asked : parse_words("delete", arguments.words)) {
    if (asked.resource != Resource::jobs)
      throw UsageError("delete: a job's replicas live and end together; delete the job, or suspend it");
    if (asked.name.empty()) continue;
    out.push_back(asked);
    spaces.push_back(arguments.flags.space);
  }
  if (arguments.files.empty()) return out;
  for (const Job& job : read_jobs("delete", arguments.files, arguments.flags).jobs) {
    out.push_back({Resource::jobs, job.kind, job.name});
    spaces.push_back(job.space);
  }
  return out;
}

int delete_jobs(const DeleteArguments& arguments) {
  std::vector<std::string> spaces;
  const std::vector<Asked> named = names_of(arguments, spaces);
  const bool many = arguments.all || !arguments.selector.empty();
  if (named.empty() == !many)
    throw UsageError(many ? "delete: names together with --all or -l; leave one of them out"
                          : "delete: which jobs? write their names, -f FILE, -l LABELS or --all");
  const Selector selector = Selector::parse(arguments.selector);
  const std::unique_ptr<Runner> runner = runner_of(arguments.flags);
  std::vector<Job> jobs;
  if (many) {
    const std::vector<Job> all = runner->list(arguments.flags.listed_space());
    std::copy_if(all.begin(), all.end(), std::back_inserter(jobs),
                 [&](const Job& job) { return selector.matches(job.labels); });
    if (jobs.empty()) say_nothing_found(arguments.flags);
  }
  for (size_t i = 0; i < named.size(); ++i) {
    JobFlags flags = arguments.flags;
    flags.space = spaces[i];
    if (arguments.ignore_not_found) {
      const std::vector<Job> all = runner->list(flags.named_space());
      const auto is_it = [&](const Job& job) { return job.name == named[i].name; };
      if (std::none_of(all.begin(), all.end(), is_it)) continue;
    }
    jobs.push_back(find_job(*runner, flags, named[i]));
  }
  for (const Job& job : jobs) {
    runner->remove(job);
    const std::string name = full_name(job);
    fmt::print("{} \"{}\" deleted from {} namespace\n", name.substr(0, name.find('/')), job.name, job.space);
    std::fflush(stdout);
  }
  return kDone;
}

}  // namespace

void add_delete_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("delete", "end jobs and forget them, with what they printed");
  auto arguments = std::make_shared<DeleteArguments>();
  command->add_option("JOB", arguments->words, "names of jobs")->type_name("");
  add_files_flag(*command, arguments->files);
  command->add_option("-l,--selector", arguments->selector, "those with these labels, such as app=x,tier!=y")
      ->type_name("LABELS")
      ->check(label_selector());
  command->add_flag("--all", arguments->all, "all jobs of the namespace");
  command->add_flag("--ignore-not-found", arguments->ignore_not_found, "what is not there is deleted already");
  add_job_flags(*command, arguments->flags, true);
  command->footer("Example: lockstep delete -f job.yaml");
  command->callback([arguments, &action] { action = [arguments] { return delete_jobs(*arguments); }; });
}

}  // namespace lockstep::cli
