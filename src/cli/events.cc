#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/job_list.h"
#include "command/help.h"

namespace lockstep::cli {
namespace {

struct EventsArguments {
  ListOptions list;
  std::vector<std::string> words;
};

int events(const EventsArguments& arguments) {
  std::vector<ResourceArgument> asked = parse_resource_arguments("events", arguments.words);
  if (asked.empty()) asked.emplace_back();
  for (ResourceArgument& each : asked) {
    if (each.resource == Resource::pods)
      throw UsageError("events: events belong to jobs; give a job, or use `lockstep describe pod/NAME`");
    each.resource = Resource::events;
  }
  return print_lists({asked}, arguments.list);
}

}  // namespace

void add_events_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("events", "list events of jobs and their replicas");
  auto arguments = std::make_shared<EventsArguments>();
  command->add_option("JOB", arguments->words, "jobs (default: all)")->type_name("");
  command->add_flag("-w,--watch", arguments->list.watch, "keep printing new events until Ctrl-C");
  add_timeout_flag(*command, arguments->list.timeout, "with -w: stop after this time, such as 60s");
  command->add_flag("--no-headers", arguments->list.no_headers, "omit the column headers");
  add_job_flags(*command, arguments->list.flags, true);
  add_examples(*command, {"lockstep events", "lockstep events mnist -w"});
  command->callback([arguments, &action] { action = [arguments] { return events(*arguments); }; });
}

}  // namespace lockstep::cli
