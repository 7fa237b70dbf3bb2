#include <fmt/format.h>

#include <memory>
#include <sstream>

#include "cli/command.h"
#include "cli/job_list.h"
#include "command/help.h"

namespace lockstep::cli {
namespace {

struct GetArguments {
  ListOptions list;
  std::vector<std::string> words;
};

// The resources of a word such as "jobs,pods" or "all".
std::vector<std::string> resources_in(const std::string& word) {
  std::vector<std::string> out;
  std::istringstream in(word);
  for (std::string each; std::getline(in, each, ',');) {
    if (each == "all")
      out.insert(out.end(), {"pods", "jobs"});
    else if (is_resource(each))
      out.push_back(each);
    else
      throw_unknown_resource("get", each);
  }
  return out;
}

// One group for each resource, or one group of objects that are given by name.
std::vector<std::vector<ResourceArgument>> groups_of(const std::vector<std::string>& words) {
  if (words[0] == "all" || words[0].find(',') != words[0].npos) {
    const std::vector<std::string> resources = resources_in(words[0]);
    if (words.size() > 1)
      throw UsageError(fmt::format(
          "get: \"{}\" cannot follow {}; give names after a single resource, or write job/NAME", words[1], words[0]));
    std::vector<std::vector<ResourceArgument>> out;
    for (const std::string& each : resources) out.push_back(parse_resource_arguments("get", {each}));
    return out;
  }
  const std::vector<ResourceArgument> asked = parse_resource_arguments("get", words);
  for (const ResourceArgument& each : asked) {
    if (each.bare && !is_resource(each.name)) throw_unknown_resource("get", each.name);
    if (each.bare || each.resource != asked.front().resource)
      throw UsageError("get: objects of several resources cannot be listed by name; run `lockstep get` once for each");
  }
  return {asked};
}

int get(const GetArguments& arguments) {
  check_output(arguments.list.output);
  return print_lists(groups_of(arguments.words), arguments.list);
}

}  // namespace

void add_get_command(CLI::App& program, Action& action) {
  CLI::App* command =
      program.add_subcommand("get", "list jobs, their pods (replicas) or events, or print objects as YAML or JSON");
  auto arguments = std::make_shared<GetArguments>();
  command
      ->add_option("RESOURCE", arguments->words,
                   "a resource, optionally followed by names; several, such as jobs,pods; or job/NAME, pod/NAME")
      ->required()
      ->type_name("jobs|jaxjobs|pods|events|all");
  command
      ->add_option(
          "-o,--output", arguments->list.output,
          "wide: more columns; yaml, json: the complete objects; name: only names; jsonpath='{.items[*].kind}'; "
          "custom-columns=NAME:.metadata.name")
      ->type_name("wide|yaml|json|name|jsonpath=TEMPLATE|custom-columns=COLUMNS");
  command->add_flag("--show-labels", arguments->list.show_labels, "add a column with all labels");
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
