#include <fmt/format.h>

#include <memory>

#include "cli/choice_check.h"
#include "cli/command.h"
#include "cli/job_list.h"

namespace lockstep::cli {
namespace {

struct GetArguments {
  ListOptions list;
  std::vector<std::string> words;
};

int get(const GetArguments& arguments) {
  const std::vector<Asked> asked = parse_words("get", arguments.words);
  for (const Asked& each : asked) {
    if (!each.bare) continue;
    if (each.name.find(',') != each.name.npos || is_resource(each.name)) throw UsageError(kOneResource);
    throw_no_resource("get", each.name);
  }
  return print_list(asked, arguments.list);
}

}  // namespace

void add_get_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("get", "list jobs, their pods (replicas) or events, or show one whole");
  auto arguments = std::make_shared<GetArguments>();
  command->add_option("RESOURCE", arguments->words, "what, and perhaps names; or job/NAME, pod/NAME")
      ->required()
      ->type_name("jobs|jaxjobs|pods|events");
  command
      ->add_option("-o,--output", arguments->list.output,
                   "wide: more columns; yaml, json: the objects; name: names only")
      ->check(one_of({"wide", "yaml", "json", "name"}));
  command->add_flag("-w,--watch", arguments->list.watch, "print a new line whenever something changes, until Ctrl-C");
  add_timeout_flag(*command, arguments->list.timeout, "with -w: end after so long, such as 60s");
  command->add_option("-l,--selector", arguments->list.selector, "only those with these labels, such as app=x,tier!=y")
      ->type_name("LABELS")
      ->check(label_selector());
  command->add_flag("--no-headers", arguments->list.no_headers, "no line with the names of the columns");
  add_job_flags(*command, arguments->list.flags, true);
  command->footer("Example: lockstep get pods -o wide -l training.kubeflow.org/job-name=mnist");
  command->callback([arguments, &action] { action = [arguments] { return get(*arguments); }; });
}

}  // namespace lockstep::cli
