#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <tuple>

#include "base/check.h"
#include "base/names.h"
#include "base/say.h"
#include "cli/command.h"
#include "cli/job_flags.h"
#include "cli/patience.h"
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

// What --for says.
struct Goal {
  bool deleted = false;
  std::string type;
  bool status = true;
};

// "created" as "Created".
std::string condition_named(const std::string& word) {
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
      "wait: there is no condition \"{}\";{} choose Created, Running, Restarting, Suspended, Succeeded or Failed", word,
      suggestion(word, all)));
}

Goal goal_of(const std::string& text) {
  if (text == "delete") return {.deleted = true, .type = ""};
  constexpr std::string_view kCondition = "condition=";
  if (!text.starts_with(kCondition))
    throw UsageError(
        fmt::format("wait: --for \"{}\" is neither condition=TYPE nor delete; write --for=condition=Succeeded", text));
  std::string type = text.substr(kCondition.size());
  bool status = true;
  if (const size_t equals = type.find('='); equals != type.npos) {
    const std::string value = type.substr(equals + 1);
    status = value == "True" || value == "true";
    if (!status && value != "False" && value != "false")
      throw UsageError(fmt::format("wait: --for: a condition is True or False, and not \"{}\"", value));
    type.resize(equals);
  }
  return {.type = condition_named(type), .status = status};
}

// The job as it is now, if it is still the same one.
const Job* find(const std::vector<Job>& jobs, const Job& job) {
  const auto found = std::find_if(jobs.begin(), jobs.end(), [&](const Job& each) {
    return each.space == job.space && each.name == job.name && each.kind == job.kind && each.uid == job.uid;
  });
  return found == jobs.end() ? nullptr : &*found;
}

std::string why(const Job& job) {
  for (auto each = job.status.conditions.rbegin(); each != job.status.conditions.rend(); ++each)
    if (each->status) return each->message;
  return "";
}

Waiting judge(const Job* job, const Goal& goal) {
  if (goal.deleted) return job ? Waiting::not_yet : Waiting::met;
  return job ? waiting_for(*job, goal.type, goal.status) : Waiting::never;
}

// The kind that all words name; none where they do not.
std::optional<JobKind> kind_of(const WaitArguments& arguments) {
  const std::vector<Asked> asked = parse_words("wait", arguments.words);
  const auto same = [&](const Asked& each) { return each.kind == asked.front().kind; };
  return !asked.empty() && std::all_of(asked.begin(), asked.end(), same) ? asked.front().kind : std::nullopt;
}

// The last line of the replica that failed first. What others printed after it is a consequence, unless the first one
// printed nothing: of processes that fail together only process 0 says why.
void say_last_line(Runner& runner, const Job& job) {
  const auto order = [](const Pod& pod) {
    const bool follows = pod.exit_code == distributed::kRetry || pod.exit_code == distributed::kKubeflowRetry;
    return std::tuple(pod.phase != PodPhase::failed, follows, !pod.ended, pod.ended.value_or(JobTime()), pod.index);
  };
  std::vector<Pod> pods = pods_of(runner, job);
  std::erase_if(pods, [](const Pod& pod) { return pod.phase != PodPhase::failed && pod.exit_code.value_or(0) == 0; });
  std::ranges::sort(pods, [&](const Pod& a, const Pod& b) { return order(a) < order(b); });
  for (const Pod& pod : pods) {
    const std::string line = last_line(runner, job, pod);
    if (line.empty()) continue;
    say("lockstep: wait: {} ended with exit code {}; its last line: {}\n", pod_name(job, pod), exit_code_text(pod),
        line);
    return;
  }
}

std::vector<Job> jobs_meant(Runner& runner, const WaitArguments& arguments, const Goal& goal) {
  std::vector<Job> out;
  if (arguments.all || !arguments.selector.empty()) {
    if (!arguments.words.empty() &&
        !std::all_of(arguments.words.begin(), arguments.words.end(),
                     [](const std::string& word) { return parse_words("wait", {word})[0].name.empty(); }))
      throw UsageError("wait: names together with --all or -l; leave one of them out");
    const Selector selector = Selector::parse(arguments.selector);
    for (const Job& job : runner.list(arguments.flags.listed_space(), kind_of(arguments)))
      if (selector.matches(job.labels)) out.push_back(job);
    if (out.empty() && !goal.deleted)
      throw_error("wait: there is no job{} in namespace {}",
                  arguments.selector.empty() ? "" : " with labels " + arguments.selector,
                  arguments.flags.named_space());
    return out;
  }
  if (!goal.deleted) return find_jobs(runner, arguments.flags, "wait", arguments.words);
  // What was deleted before is deleted.
  const std::vector<Job> there = runner.list(arguments.flags.named_space(), kind_of(arguments));
  for (const Asked& asked : parse_words("wait", arguments.words))
    for (const Job& job : there)
      if (job.name == asked.name && is_of_kind(job, asked)) out.push_back(job);
  return out;
}

// All jobs among which those that are left are found. Only kinds that are left are asked for.
std::vector<Job> jobs_now(Runner& runner, const WaitArguments& arguments, const std::vector<Job>& left) {
  if (left.empty()) return {};
  const bool same = std::all_of(left.begin(), left.end(), [&](const Job& job) { return job.kind == left[0].kind; });
  return runner.list(arguments.flags.listed_space(), same ? std::optional(left[0].kind) : std::nullopt);
}

int wait(const WaitArguments& arguments) {
  const Goal goal = goal_of(arguments.what);
  const Clock::time_point end = Clock::now() + *parse_duration(arguments.timeout);
  const std::unique_ptr<Runner> runner = runner_of(arguments.flags);
  Patience patience(end);
  std::vector<Job> left = patience.ask([&] { return jobs_meant(*runner, arguments, goal); });
  bool never = false;
  for (;;) {
    const std::vector<Job> jobs = patience.ask([&] { return jobs_now(*runner, arguments, left); });
    std::erase_if(left, [&](const Job& each) {
      const Job* job = find(jobs, each);
      const Waiting answer = judge(job, goal);
      if (answer == Waiting::met) fmt::print("{} condition met\n", full_name(each));
      std::fflush(stdout);
      if (answer == Waiting::never && !job)
        say("lockstep: wait: {} was deleted\n", short_name(each));
      else if (answer == Waiting::never)
        say("lockstep: wait: {} has ended as {}, and {}{} will not come any more: {}\n", short_name(each),
            job_state(*job), goal.type, goal.status ? "" : "=False", why(*job));
      if (answer == Waiting::never && job && job_state(*job) == "Failed") say_last_line(*runner, *job);
      never = never || answer == Waiting::never;
      return answer != Waiting::not_yet;
    });
    if (left.empty()) return never ? kFailed : kDone;
    if (Clock::now() >= end) break;
    runner->wait_for_change();
  }
  for (const Job& job : left) say("error: timed out waiting for the condition on {}\n", short_name(job));
  return kFailed;
}

}  // namespace

void add_wait_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("wait", "wait until a job has succeeded, failed, started or gone");
  auto arguments = std::make_shared<WaitArguments>();
  command->add_option("JOB", arguments->words, "names of jobs")->type_name("");
  command
      ->add_option("--for", arguments->what,
                   "condition=Succeeded (or Created, Running, Restarting, Suspended, Failed), or delete")
      ->required()
      ->type_name("WHAT");
  add_timeout_flag(*command, arguments->timeout, "give up after so long, with exit code 1 (default: 30s)");
  command->add_option("-l,--selector", arguments->selector, "for those with these labels, such as app=x,tier!=y")
      ->type_name("LABELS")
      ->check(label_selector());
  command->add_flag("--all", arguments->all, "for all jobs of the namespace");
  add_job_flags(*command, arguments->flags);
  command->footer(
      "Ends at once, with exit code 1, when the job has ended otherwise.\n"
      "Example: lockstep wait --for=condition=Succeeded mnist --timeout 5m");
  command->callback([arguments, &action] { action = [arguments] { return wait(*arguments); }; });
}

}  // namespace lockstep::cli
