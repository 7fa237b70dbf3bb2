#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "base/check.h"
#include "base/names.h"
#include "base/print_stderr.h"
#include "cli/command.h"
#include "cli/job_flags.h"
#include "cli/retry.h"
#include "command/help.h"
#include "jobs/selector.h"
#include "jobs/show.h"
#include "jobs/table.h"
#include "lockstep/distributed.h"

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct WaitArguments {
  JobFlags flags;
  std::vector<std::string> words;
  std::string what, timeout = "30s", selector;
  bool all = false;
};

// The event that --for waits for: the deletion of the jobs, or a status of a condition.
struct WaitGoal {
  bool deleted = false;
  std::string type;
  bool status = true;
};

// Returns the condition with this name, in any case: "Created" for "created".
std::string parse_condition(const std::string& word) {
  static const std::vector<std::string> all = {"Created", "Running", "Restarting", "Suspended", "Succeeded", "Failed"};
  const auto lower = [](std::string text) {
    for (char& c : text)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return text;
  };
  if (lower(word) == "complete") return "Succeeded";  // what batch/v1 calls it
  for (const std::string& each : all)
    if (lower(each) == lower(word)) return each;
  throw UsageError(fmt::format(
      "wait: unknown condition \"{}\";{} choose Created, Running, Restarting, Suspended, Succeeded or Failed", word,
      suggestion(word, all)));
}

WaitGoal parse_goal(const std::string& text) {
  if (text == "delete") return {.deleted = true, .type = ""};
  constexpr std::string_view kCondition = "condition=";
  if (!text.starts_with(kCondition))
    throw UsageError(
        fmt::format("wait: --for: \"{}\" is not condition=TYPE or delete; use --for=condition=Succeeded", text));
  std::string type = text.substr(kCondition.size());
  bool status = true;
  if (const size_t equals = type.find('='); equals != type.npos) {
    const std::string value = type.substr(equals + 1);
    status = value == "True" || value == "true";
    if (!status && value != "False" && value != "false")
      throw UsageError(fmt::format("wait: --for: \"{}\" is not True or False", value));
    type.resize(equals);
  }
  return {.type = parse_condition(type), .status = status};
}

// Returns the current state of the job; null if it was deleted or replaced by another job of its name.
const Job* find(const std::vector<Job>& jobs, const Job& job) {
  const auto found = std::find_if(jobs.begin(), jobs.end(), [&](const Job& each) {
    return each.namespace_name == job.namespace_name && each.name == job.name && each.kind == job.kind &&
           each.uid == job.uid;
  });
  return found == jobs.end() ? nullptr : &*found;
}

std::string current_condition_message(const Job& job) {
  for (auto each = job.status.conditions.rbegin(); each != job.status.conditions.rend(); ++each)
    if (each->status) return each->message;
  return "";
}

ConditionResult judge(const Job* job, const WaitGoal& goal) {
  if (goal.deleted) return job ? ConditionResult::not_yet : ConditionResult::met;
  return job ? check_condition(*job, goal.type, goal.status) : ConditionResult::never;
}

// The kind that all arguments have in common, if any.
std::optional<JobKind> common_kind(const WaitArguments& arguments) {
  const std::vector<ResourceArgument> asked = parse_resource_arguments("wait", arguments.words);
  const auto same = [&](const ResourceArgument& each) { return each.kind == asked.front().kind; };
  return !asked.empty() && std::all_of(asked.begin(), asked.end(), same) ? asked.front().kind : std::nullopt;
}

// Prints the last line of the first replica that failed and printed anything. Later failures are usually consequences
// of the first. When processes fail together, only process 0 prints the reason. Returns whether there is such a line, or
// all replicas have ended.
bool print_failed_replica(Runner& runner, const Job& job) {
  const auto order = [](const Pod& pod) {
    const bool follows = pod.exit_code == distributed::kRetry || pod.exit_code == distributed::kKubeflowRetry;
    return std::tuple(pod.phase != PodPhase::failed, follows, !pod.ended, pod.ended.value_or(JobTime()), pod.index);
  };
  std::vector<Pod> pods = pods_of(runner, job);
  const bool all_ended = std::ranges::all_of(
      pods, [](const Pod& pod) { return pod.phase == PodPhase::failed || pod.phase == PodPhase::succeeded; });
  std::erase_if(pods, [](const Pod& pod) { return pod.phase != PodPhase::failed && pod.exit_code.value_or(0) == 0; });
  std::ranges::sort(pods, [&](const Pod& a, const Pod& b) { return order(a) < order(b); });
  for (const Pod& pod : pods) {
    const std::string line = last_output_line(runner, job, pod);
    if (line.empty()) continue;
    print_stderr("lockstep: wait: {} ended with exit code {}; its last line: {}\n", pod_name(job, pod),
                 exit_code_text(pod), line);
    return true;
  }
  return all_ended;
}

// A job has failed when the first replica has; the one that prints the reason may end a moment later.
void print_failure(Runner& runner, const Job& job) {
  constexpr std::chrono::seconds kMoment{3};
  const Clock::time_point end = Clock::now() + kMoment;
  while (!print_failed_replica(runner, job) && Clock::now() < end) runner.wait_for_change();
}

std::vector<Job> selected_jobs(Runner& runner, const WaitArguments& arguments, const WaitGoal& goal) {
  std::vector<Job> out;
  if (arguments.all || !arguments.selector.empty()) {
    if (!arguments.words.empty() &&
        !std::all_of(arguments.words.begin(), arguments.words.end(),
                     [](const std::string& word) { return parse_resource_arguments("wait", {word})[0].name.empty(); }))
      throw UsageError("wait: names cannot be combined with --all or -l; use one of them");
    const Selector selector = Selector::parse(arguments.selector);
    for (const Job& job : runner.list(arguments.flags.list_namespace(), common_kind(arguments)))
      if (selector.matches(job.labels)) out.push_back(job);
    if (out.empty() && !goal.deleted)
      throw_error("wait: no job{} found in namespace {}",
                  arguments.selector.empty() ? "" : " with labels " + arguments.selector,
                  arguments.flags.lookup_namespace());
    return out;
  }
  if (!goal.deleted) return find_jobs(runner, arguments.flags, "wait", arguments.words);
  // A job that does not exist counts as deleted.
  const std::vector<Job> existing = runner.list(arguments.flags.lookup_namespace(), common_kind(arguments));
  for (const ResourceArgument& asked : parse_resource_arguments("wait", arguments.words))
    for (const Job& job : existing)
      if (job.name == asked.name && has_kind(job, asked)) out.push_back(job);
  return out;
}

// Lists the jobs among which the remaining ones are looked up, restricted to their kind where it is the same for all.
std::vector<Job> list_current(Runner& runner, const WaitArguments& arguments, const std::vector<Job>& left) {
  if (left.empty()) return {};
  const bool same = std::all_of(left.begin(), left.end(), [&](const Job& job) { return job.kind == left[0].kind; });
  return runner.list(arguments.flags.list_namespace(), same ? std::optional(left[0].kind) : std::nullopt);
}

// Tells why jobs do not start, each reason once.
class WaitReasons {
 public:
  explicit WaitReasons(Runner& runner) : runner_(runner) {}

  // Looks at jobs that are not running, at most every few seconds.
  void look(const std::vector<Job>& jobs) {
    if (Clock::now() < next_) return;
    for (const Job& job : jobs) {
      if (job_state(job) == "Running" || is_finished(job)) continue;
      std::string reason;
      try {
        reason = runner_.why_waiting(job);
      } catch (const RunnerUnreachable&) {  // the loop that waits reports it
        continue;
      }
      if (reason.empty() || reasons_[job.uid] == reason) continue;
      print_stderr("lockstep: wait: {} does not start: {}\n", short_name(job), reason);
      reasons_[job.uid] = reason;
    }
    next_ = Clock::now() + kPause;
  }

 private:
  static constexpr std::chrono::seconds kPause{5};
  Runner& runner_;
  Clock::time_point next_ = Clock::now();
  std::map<std::string, std::string> reasons_;  // by uid
};

int wait(const WaitArguments& arguments) {
  const WaitGoal goal = parse_goal(arguments.what);
  const Clock::time_point end = Clock::now() + *parse_duration(arguments.timeout);
  const std::unique_ptr<Runner> runner = runner_for(arguments.flags);
  Retrier retrier(end);
  std::vector<Job> left = retrier.run([&] { return selected_jobs(*runner, arguments, goal); });
  bool never = false;
  WaitReasons reasons(*runner);
  for (;;) {
    const std::vector<Job> jobs = retrier.run([&] { return list_current(*runner, arguments, left); });
    std::erase_if(left, [&](const Job& each) {
      const Job* job = find(jobs, each);
      const ConditionResult answer = judge(job, goal);
      if (answer == ConditionResult::met) fmt::print("{} condition met\n", full_name(each));
      std::fflush(stdout);
      if (answer == ConditionResult::never && !job)
        print_stderr("lockstep: wait: {} was deleted\n", short_name(each));
      else if (answer == ConditionResult::never)
        print_stderr("lockstep: wait: {} has already ended as {} and can no longer reach {}{}: {}\n", short_name(each),
                     job_state(*job), goal.type, goal.status ? "" : "=False", current_condition_message(*job));
      if (answer == ConditionResult::never && job && job_state(*job) == "Failed") print_failure(*runner, *job);
      never = never || answer == ConditionResult::never;
      return answer != ConditionResult::not_yet;
    });
    if (left.empty()) return never ? kFailed : kDone;
    if (!goal.deleted) {
      std::vector<Job> waiting;
      for (const Job& each : left)
        if (const Job* job = find(jobs, each)) waiting.push_back(*job);
      reasons.look(waiting);
    }
    if (Clock::now() >= end) break;
    runner->wait_for_change();
  }
  for (const Job& job : left) print_stderr("error: timed out waiting for the condition on {}\n", short_name(job));
  return kFailed;
}

}  // namespace

void add_wait_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("wait", "wait until jobs have started, succeeded, failed or been deleted");
  auto arguments = std::make_shared<WaitArguments>();
  command->add_option("JOB", arguments->words, "names of jobs")->type_name("");
  command
      ->add_option("--for", arguments->what,
                   "condition=Succeeded (or Created, Running, Restarting, Suspended, Failed), or delete; append =False "
                   "to wait until the condition is false")
      ->required()
      ->type_name("WHAT");
  add_timeout_flag(*command, arguments->timeout, "fail with exit code 1 after this time (default: 30s)");
  command->add_option("-l,--selector", arguments->selector, "jobs with these labels, such as app=x,tier!=y")
      ->type_name("LABELS")
      ->check(label_selector());
  command->add_flag("--all", arguments->all, "all jobs of the namespace");
  add_job_flags(*command, arguments->flags);
  add_footer(*command,
             "Fails immediately, with exit code 1, when the job has ended and can no longer reach the condition.");
  add_examples(*command,
               {"lockstep wait --for=condition=Succeeded mnist --timeout 5m", "lockstep wait --for=delete mnist"});
  command->callback([arguments, &action] { action = [arguments] { return wait(*arguments); }; });
}

}  // namespace lockstep::cli
