#include "cli/started_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "cli/command.h"

namespace lockstep::cli {
namespace {

// Throws UsageError for mistakes in the number of processes for which the parser would report another error.
void check_processes_flag(std::string_view command, const char* example, char** begin, char** end) {
  for (char** at = begin; at != end; ++at) {
    const std::string_view word = *at;
    if (word == "-np" || word.starts_with("-np=") || word == "--np")
      throw UsageError(fmt::format("{}: unknown flag {}; did you mean \"-n\"? {}", command, word, example));
    if (word != "-n" && word != "--processes") continue;
    const std::string_view next = at + 1 == end ? "" : at[1];
    const bool number = !next.empty() && (next[0] != '-' || (next.size() > 1 && next[1] >= '0' && next[1] <= '9'));
    if (!number) throw UsageError(fmt::format("{}: {} needs a number, {}", command, word, example));
  }
}

}  // namespace

std::vector<std::string>& command_after_dashes() {
  static std::vector<std::string> words;
  return words;
}

std::vector<std::string> names_of_commands() {
  return {
#define COMMAND(name, title) #name,
#include "cli/commands.def"
#undef COMMAND
  };
}

int take_launched_command(int argc, char** argv) {
  const std::string_view command = argc < 2 ? "" : argv[1];
  if (command != "launch" && command != "submit") return argc;
  const char* const example = command == "launch" ? kLaunchExample : kSubmitExample;
  char** const end = argv + argc;
  char** const dashes = std::find(argv, end, std::string_view("--"));
  check_processes_flag(command, example, argv + 2, dashes);
  if (dashes != end) {
    command_after_dashes().assign(dashes + 1, end);
    return static_cast<int>(dashes - argv);
  }
  const auto asks = [](std::string_view word) { return word == "--help" || word == "-h"; };
  const auto names_program = [](std::string_view word) {
    return word == "--program" || word.starts_with("--program=");
  };
  if (!std::any_of(argv, end, asks) && (command == "submit" || !std::any_of(argv, end, names_program)))
    throw UsageError(fmt::format("{}: no command after --; add one, {}", command, example));
  return argc;
}

}  // namespace lockstep::cli
