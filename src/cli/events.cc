#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/job_list.h"

namespace lockstep::cli {
namespace {

struct EventsArguments {
  ListOptions list;
  std::vector<std::string> words;
};

int events(const EventsArguments& arguments) {
  std::vector<Asked> asked = parse_words("events", arguments.words);
  if (asked.empty()) asked.emplace_back();
  for (Asked& each : asked) {
    if (each.resource == Resource::pods)
      throw UsageError("events: they are kept by job; name a job, or write `lockstep describe pod/NAME`");
    each.resource = Resource::events;
  }
  return print_list(asked, arguments.list);
}

}  // namespace

void add_events_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("events", "tell what happened to jobs and their replicas");
  auto arguments = std::make_shared<EventsArguments>();
  command->add_option("JOB", arguments->words, "only of these jobs")->type_name("");
  command->add_flag("-w,--watch", arguments->list.watch, "go on with what happens, until Ctrl-C");
  add_timeout_flag(*command, arguments->list.timeout, "with -w: end after so long, such as 60s");
  command->add_flag("--no-headers", arguments->list.no_headers, "no line with the names of the columns");
  add_job_flags(*command, arguments->list.flags, true);
  command->footer("Example: lockstep events mnist -w");
  command->callback([arguments, &action] { action = [arguments] { return events(*arguments); }; });
}

}  // namespace lockstep::cli
