#include <fmt/format.h>

#include <cstdlib>
#include <limits>
#include <memory>

#include "base/check.h"
#include "cli/command.h"
#include "cli/job_flags.h"
#include "command/help.h"
#include "command/number_check.h"
#include "jobs/model/manifest.h"

namespace lockstep::cli {
namespace {

struct LogsArguments {
  JobFlags flags;
  std::string name;
  LogOptions log;
  int replica = -1;   // not given
  int64_t tail = -1;  // all
};

int logs(const LogsArguments& arguments) {
  const std::vector<ResourceArgument> asked = parse_resource_arguments("logs", {arguments.name});
  if (asked.size() != 1 || asked[0].name.empty() || asked[0].resource == Resource::events)
    throw UsageError(fmt::format("logs: \"{}\" is not a job or pod; give the name of one", arguments.name));
  const std::unique_ptr<Runner> runner = runner_for(arguments.flags);
  const auto [job, pod] = find_job_or_pod(*runner, arguments.flags, asked[0]);
  const int index = pod ? pod->index : -1;
  if (index >= 0 && arguments.replica >= 0 && index != arguments.replica)
    throw UsageError(fmt::format("logs: {} is replica {}, but --replica is {}; omit --replica", arguments.name, index,
                                 arguments.replica));
  LogOptions options = arguments.log;
  options.replica = index >= 0 ? index : std::max(arguments.replica, 0);
  if (pod) options.pod = pod->name;
  if (options.replica >= job.spec.replicas)
    throw_error("logs: {} has no replica {}; give a number from 0 to {}", job.name, options.replica,
                job.spec.replicas - 1);
  if (arguments.tail >= 0) options.tail = arguments.tail;
  runner->logs(job, options, [](std::string_view text) {
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  });
  return kDone;
}

}  // namespace

void add_logs_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("logs", "print the output of a replica");
  auto arguments = std::make_shared<LogsArguments>();
  command->add_option("JOB", arguments->name, "a job, or a pod: NAME, job/NAME or pod/NAME")->required()->type_name("");
  command->add_flag("-f,--follow", arguments->log.follow, "keep printing new output until the replica ends");
  command->add_option("--replica", arguments->replica, "the replica of the job (default: 0)")
      ->type_name("N")
      ->check(integer_between(0, kMaxReplicas - 1));
  command->add_flag("-p,--previous", arguments->log.previous,
                    "print the output of the attempt before the last restart");
  command->add_option("--tail", arguments->tail, "print only the last N lines (default: all)")
      ->type_name("N")
      ->check(integer_between(0, std::numeric_limits<int>::max()));
  add_job_flags(*command, arguments->flags);
  add_examples(*command, {"lockstep logs -f mnist", "lockstep logs mnist --replica 1 --tail 20"});
  command->callback([arguments, &action] { action = [arguments] { return logs(*arguments); }; });
}

}  // namespace lockstep::cli
