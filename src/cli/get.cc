#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/job_list.h"
#include "command/choice_check.h"
#include "command/help.h"

namespace lockstep::cli {
namespace {

struct GetArguments {
  ListOptions list;
  std::vector<std::string> words;
};

int get(const GetArguments& arguments) {
  const std::vector<ResourceArgument> asked = parse_resource_arguments("get", arguments.words);
  for (const ResourceArgument& each : asked) {
    if (!each.bare) continue;
    if (each.name.find(',') != each.name.npos || is_resource(each.name)) throw UsageError(kOneResource);
    throw_unknown_resource("get", each.name);
  }
  return print_list(asked, arguments.list);
}

}  // namespace

void add_get_command(CLI::App& program, Action& action) {
  CLI::App* command =
      program.add_subcommand("get", "list jobs, their pods (replicas) or events, or print objects as YAML or JSON");
  auto arguments = std::make_shared<GetArguments>();
  command->add_option("RESOURCE", arguments->words, "a resource, optionally followed by names; or job/NAME, pod/NAME")
      ->required()
      ->type_name("jobs|jaxjobs|pods|events");
  command
      ->add_option("-o,--output", arguments->list.output,
                   "wide: more columns; yaml, json: the complete objects; name: only names")
      ->check(one_of({"wide", "yaml", "json", "name"}));
  command->add_flag("-w,--watch", arguments->list.watch, "print a line for each change until Ctrl-C");
  add_timeout_flag(*command, arguments->list.timeout, "with -w: stop after this time, such as 60s");
  command
      ->add_option("-l,--selector", arguments->list.selector, "only objects with these labels, such as app=x,tier!=y")
      ->type_name("LABELS")
      ->check(label_selector());
  command->add_flag("--no-headers", arguments->list.no_headers, "omit the column headers");
  add_job_flags(*command, arguments->list.flags, true);
  add_examples(*command, {"lockstep get jobs -A", "lockstep get -o yaml jaxjobs mnist",
                          "lockstep get pods -o wide -l training.kubeflow.org/job-name=mnist"});
  command->callback([arguments, &action] { action = [arguments] { return get(*arguments); }; });
}

}  // namespace lockstep::cli
