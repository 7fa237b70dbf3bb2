#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/check.h"
#include "cli/command.h"
#include "cli/job_flags.h"
#include "command/help.h"
#include "jobs/selector.h"
#include "jobs/show.h"

namespace lockstep::cli {
namespace {

struct DescribeArguments {
  JobFlags flags;
  std::vector<std::string> words;
  std::string selector;
};

// Prints descriptions, separated by two empty lines.
class DescriptionPrinter {
 public:
  explicit DescriptionPrinter(Runner& runner) : runner_(runner) {}

  void add_job(const Job& job) {
    std::vector<PodAndLine> pods;
    for (const Pod& pod : pods_of(runner_, job)) pods.emplace_back(pod, last_output_line(runner_, job, pod));
    print(describe_job(job, pods, runner_.events(job), now(), earlier_attempts(job)));
  }
  void add_pod(const Job& job, const Pod& pod) {
    print(describe_pod(job, {pod, last_output_line(runner_, job, pod)}, runner_.events(job), now()));
  }
  bool empty() const { return !begun_; }

 private:
  std::vector<PodAndLine> earlier_attempts(const Job& job) {
    constexpr std::ptrdiff_t kMost = 20;
    std::vector<EarlierAttempt> all = runner_.earlier_attempts(job);
    if (std::ssize(all) > kMost) all.erase(all.begin(), all.end() - kMost);
    std::vector<PodAndLine> out;
    for (const auto& [pod, same_pod] : all) out.emplace_back(pod, last_output_line(runner_, job, pod, same_pod));
    return out;
  }

  void print(const std::string& page) { fmt::print("{}{}", std::exchange(begun_, true) ? "\n\n" : "", page); }

  Runner& runner_;
  bool begun_ = false;
};

void describe_one(Runner& runner, const JobFlags& flags, const ResourceArgument& asked, DescriptionPrinter& pages) {
  const auto [job, pod] = find_job_or_pod(runner, flags, asked);
  if (!pod) return pages.add_job(job);
  if (!runner.lists_pending_replicas()) return pages.add_pod(job, *pod);
  for (const Pod& each : pods_of(runner, job))
    if (each.index == pod->index) return pages.add_pod(job, each);
  throw_error("describe: {} is not running now; `lockstep describe {}` shows why", asked.name, job.name);
}

void describe_all(Runner& runner, const JobFlags& flags, const ResourceArgument& asked, const Selector& selector,
                  DescriptionPrinter& pages) {
  for (const Job& job : runner.list(flags.list_namespace(), asked.kind)) {
    if (asked.resource == Resource::jobs && has_kind(job, asked) && selector.matches(job.labels)) pages.add_job(job);
    if (asked.resource != Resource::pods) continue;
    for (const Pod& pod : pods_of(runner, job))
      if (selector.matches(pod_labels(job, pod.index))) pages.add_pod(job, pod);
  }
  if (pages.empty()) print_none_found(flags);
}

int describe(const DescribeArguments& arguments) {
  const std::vector<ResourceArgument> all = parse_resource_arguments("describe", arguments.words);
  const Selector selector = Selector::parse(arguments.selector);
  for (const ResourceArgument& asked : all)
    if (asked.resource == Resource::events)
      throw UsageError("describe: events have no description; use `lockstep events`");
  const std::unique_ptr<Runner> runner = runner_for(arguments.flags);
  DescriptionPrinter pages(*runner);
  for (const ResourceArgument& asked : all) {
    if (asked.name.empty())
      describe_all(*runner, arguments.flags, asked, selector, pages);
    else
      describe_one(*runner, arguments.flags, asked, pages);
  }
  return kDone;
}

}  // namespace

void add_describe_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand(
      "describe", "show details of a job or pod: spec, status, conditions, exit codes, last output lines, events");
  auto arguments = std::make_shared<DescribeArguments>();
  command->add_option("NAME", arguments->words, "jobs or pods: NAME, job/NAME, pod/NAME, or `jobs` for all jobs")
      ->required()
      ->type_name("");
  command->add_option("-l,--selector", arguments->selector, "only objects with these labels, such as app=x,tier!=y")
      ->type_name("LABELS")
      ->check(label_selector());
  add_job_flags(*command, arguments->flags, true);
  add_examples(*command, {"lockstep describe mnist", "lockstep describe pod/mnist-worker-1"});
  command->callback([arguments, &action] { action = [arguments] { return describe(*arguments); }; });
}

}  // namespace lockstep::cli
