#include "lockstep/version.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "cli/command.h"
#include "cli/features.h"
#include "command/choice_check.h"
#include "command/help.h"

namespace lockstep::cli {
namespace {

void print_text() {
  const auto print_line = [](const std::string& name, const std::string& value) {
    fmt::print("  {:<20}  {}\n", name, printable_lines(value));
  };
  const BuildFacts build = build_facts();
  fmt::print("lockstep {}\n", LOCKSTEP_VERSION);
  print_line("commit", build.commit);
  print_line("build", fmt::format("{}, {}, {}", build.type, build.compiler, build.machine));
  for (const Feature& each : features()) print_line(each.name, each.used.empty() ? each.why_not : each.used);
}

void print_json() {
  using nlohmann::ordered_json;
  const BuildFacts build = build_facts();
  ordered_json parts = ordered_json::object();
  for (const Feature& each : features())
    parts[each.name] = {{"available", !each.used.empty()}, {"used", each.used}, {"reason", each.why_not}};
  const ordered_json out = {{"version", LOCKSTEP_VERSION}, {"commit", build.commit},   {"build_type", build.type},
                            {"compiler", build.compiler},  {"machine", build.machine}, {"features", parts}};
  fmt::print("{}\n", out.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

}  // namespace

void add_version_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("version", "print the version, the build and its features");
  auto output = std::make_shared<std::string>("text");
  command->add_option("-o,--output", *output, "output format (default: text)")->check(one_of({"text", "json"}));
  add_footer(*command, "`lockstep --version` prints the version alone.");
  add_examples(*command, {"lockstep version", "lockstep version -o json"});
  command->callback([output, &action] {
    action = [output] {
      if (*output == "json")
        print_json();
      else
        print_text();
      return kDone;
    };
  });
}

}  // namespace lockstep::cli
