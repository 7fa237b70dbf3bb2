#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/print_stderr.h"
#include "base/start_thread.h"
#include "cli/command.h"
#include "cli/job_flags.h"
#include "cli/retry.h"
#include "command/help.h"
#include "command/number_check.h"
#include "jobs/model/manifest.h"
#include "jobs/selector.h"
#include "jobs/table.h"

namespace lockstep::cli {
namespace {

struct LogsArguments {
  JobFlags flags;
  std::string name, selector, since;
  LogOptions log;
  int replica = -1;   // not given
  int64_t tail = -1;  // all
  bool all_replicas = false;
};

bool write_out(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

// A replica to print the log of.
struct LoggedReplica {
  Job job;
  Pod pod;
  std::string name;  // of the replica
};

// Prints the logs of several replicas, each line after the name of its replica. Follows them at the same time.
class ReplicaLogs {
 public:
  ReplicaLogs(Runner& runner, const JobFlags& flags, LogOptions options)
      : runner_(runner), flags_(flags), options_(std::move(options)) {}

  int print(const std::vector<LoggedReplica>& replicas) {
    if (!options_.follow) {
      for (const LoggedReplica& each : replicas) print_one(each);
    } else {
      // A runner is used by one thread.
      std::vector<std::thread> threads;
      for (const LoggedReplica& each : replicas) threads.push_back(start_thread([this, &each] { print_one(each); }));
      for (std::thread& each : threads) each.join();
    }
    return failed_ ? kFailed : kDone;
  }

 private:
  void print_one(const LoggedReplica& replica) {
    std::string line;
    const auto sink = [&](std::string_view text) {
      line += text;
      const size_t end = line.rfind('\n');
      if (end == line.npos) return !closed_;
      const std::string complete = line.substr(0, end + 1);
      line.erase(0, end + 1);
      return write_lines(replica.name, complete);
    };
    try {
      LogOptions options = options_;
      options.replica = replica.pod.index;
      if (options.follow)
        make_runner(runner_name(flags_))->logs(replica.job, options, sink);
      else
        runner_.pod_log(replica.job, replica.pod, options, sink);
      if (!line.empty()) write_lines(replica.name, line + "\n");
    } catch (const std::exception& error) {
      failed_ = true;
      print_stderr("lockstep: {}: {}\n", replica.name, error.what());
    }
  }

  bool write_lines(const std::string& pod, std::string_view lines) {
    std::string text;
    while (!lines.empty()) {
      const size_t end = lines.find('\n') + 1;
      text += fmt::format("[{}] {}", pod, lines.substr(0, end));
      lines.remove_prefix(end);
    }
    const std::lock_guard lock(mutex_);
    if (!closed_ && !write_out(text)) closed_ = true;
    return !closed_;
  }

  Runner& runner_;
  const JobFlags& flags_;
  const LogOptions options_;
  std::mutex mutex_;  // guards standard output
  std::atomic<bool> closed_ = false, failed_ = false;
};

// Calls `body`. With --follow, repeats it while the runner is unreachable, as Runner::logs() does.
template <class Body>
auto reach(const LogOptions& options, const Body& body) {
  constexpr std::chrono::minutes kPatience{10};
  Retrier retrier(options.follow ? Retrier::Clock::now() + kPatience : Retrier::Clock::now());
  return options.follow ? retrier.run(body) : body();
}

int print_replicas(Runner& runner, const std::vector<Job>& jobs, const Selector& selector,
                   const LogsArguments& arguments, const LogOptions& options) {
  std::vector<LoggedReplica> replicas;
  for (const Job& job : jobs) {
    int previous = -1;  // on Kubernetes a replica may have several pods
    for (const Pod& pod : reach(options, [&] { return pods_of(runner, job); })) {
      const bool selected = selector.matches(pod_labels(job, pod.index)) &&
                            (arguments.replica < 0 || arguments.replica == pod.index) &&
                            (pod.started || options.follow);
      if (selected && std::exchange(previous, pod.index) != pod.index)
        replicas.push_back({job, pod, pod_name(job, pod.index)});
    }
  }
  if (replicas.empty()) print_none_found(arguments.flags);
  return ReplicaLogs(runner, arguments.flags, options).print(replicas);
}

int print_one(Runner& runner, const LogsArguments& arguments, const ResourceArgument& asked, LogOptions options) {
  const auto [job, pod] = reach(options, [&] { return find_job_or_pod(runner, arguments.flags, asked); });
  const int index = pod ? pod->index : -1;
  if (index >= 0 && arguments.replica >= 0 && index != arguments.replica)
    throw UsageError(fmt::format("logs: {} is replica {}, but --replica is {}; omit --replica", arguments.name, index,
                                 arguments.replica));
  if (arguments.all_replicas && pod)
    throw UsageError(fmt::format("logs: {} is a single pod; give its job for --all-replicas", arguments.name));
  if (arguments.all_replicas) return print_replicas(runner, {job}, Selector::parse(""), arguments, options);
  options.replica = index >= 0 ? index : std::max(arguments.replica, 0);
  if (pod) options.pod = pod->name;
  if (options.replica >= job.spec.replicas)
    throw_error("logs: {} has no replica {}; give a number from 0 to {}", job.name, options.replica,
                job.spec.replicas - 1);
  runner.logs(job, options, write_out);
  return kDone;
}

int logs(const LogsArguments& arguments) {
  if (arguments.name.empty() == arguments.selector.empty())
    throw UsageError(arguments.name.empty() ? "logs: no job given; give a job, a pod, or labels with -l"
                                            : "logs: a name cannot be combined with -l; use one of them");
  if (arguments.all_replicas && arguments.replica >= 0)
    throw UsageError("logs: --replica cannot be combined with --all-replicas; omit one of them");
  LogOptions options = arguments.log;
  if (arguments.tail >= 0) options.tail = arguments.tail;
  if (!arguments.since.empty())
    options.since = std::chrono::ceil<std::chrono::seconds>(parse_duration(arguments.since).value());
  if (!arguments.selector.empty()) {
    const std::unique_ptr<Runner> runner = runner_for(arguments.flags);
    return print_replicas(*runner, reach(options, [&] { return runner->list(arguments.flags.lookup_namespace()); }),
                          Selector::parse(arguments.selector), arguments, options);
  }
  const std::vector<ResourceArgument> asked = parse_resource_arguments("logs", {arguments.name});
  if (asked.size() != 1 || asked[0].name.empty() || asked[0].resource == Resource::events)
    throw UsageError(fmt::format("logs: \"{}\" is not a job or pod; give the name of one", arguments.name));
  const std::unique_ptr<Runner> runner = runner_for(arguments.flags);
  return print_one(*runner, arguments, asked[0], options);
}

}  // namespace

void add_logs_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("logs", "print the output of replicas");
  auto arguments = std::make_shared<LogsArguments>();
  command->add_option("JOB", arguments->name, "a job, or a pod: NAME, job/NAME or pod/NAME")->type_name("");
  command->add_flag("--all-replicas", arguments->all_replicas,
                    "print the output of all replicas of the job, each line after the name of its replica");
  command
      ->add_option("-l,--selector", arguments->selector,
                   "print the output of all replicas with these labels, such as app=x,tier!=y")
      ->type_name("LABELS")
      ->check(label_selector());
  command->add_flag("-f,--follow", arguments->log.follow, "keep printing new output until the replica ends");
  command->add_option("--replica", arguments->replica, "the replica of the job (default: 0)")
      ->type_name("N")
      ->check(integer_between(0, kMaxReplicas - 1));
  command->add_flag("-p,--previous", arguments->log.previous,
                    "print the output of the attempt before the last restart");
  command->add_option("--since", arguments->since, "print only output of the last TIME, such as 90s, 5m or 2h")
      ->type_name("TIME")
      ->check(
          [](const std::string& text) -> std::string {
            return parse_duration(text) ? "" : fmt::format("\"{}\" is not a time such as 90s, 5m or 2h", text);
          },
          "");
  command->add_option("--tail", arguments->tail, "print only the last N lines (default: all)")
      ->type_name("N")
      ->check(integer_between(0, std::numeric_limits<int>::max()));
  add_job_flags(*command, arguments->flags);
  add_examples(*command, {"lockstep logs -f mnist", "lockstep logs mnist --replica 1 --tail 20",
                          "lockstep logs -f mnist --all-replicas"});
  command->callback([arguments, &action] { action = [arguments] { return logs(*arguments); }; });
}

}  // namespace lockstep::cli
