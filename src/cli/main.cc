// The program `lockstep`: finds the subcommand, runs it, and turns failures into one message and an exit code:
// 0 done, 1 it failed, 2 the command line is wrong.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli/command.h"
#include "lockstep/version.h"

namespace lockstep::cli {
namespace {

// The number of letters to insert, remove or change to make one word of the other.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// ` did you mean "train"?` when one of the words is near, else nothing.
std::string suggestion(const std::string& wrong, const std::vector<std::string>& words) {
  const std::string* best = nullptr;
  size_t nearest = 3;
  for (const std::string& word : words) {
    const size_t distance = edit_distance(wrong, word);
    if (distance < nearest && distance < word.size()) best = &word, nearest = distance;
  }
  return best ? " did you mean \"" + *best + "\"?" : "";
}

// What is wrong with the command line, said of the subcommand where it is: `data fetch: no flag --dri; did you mean
// …`.
std::string usage_error(CLI::App& program, const CLI::ParseError& error) {
  CLI::App* app = &program;
  std::string name = program.get_name(), place;
  while (app->remaining().empty() && !app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    name += " " + app->get_name();
    place += (place.empty() ? "" : " ") + app->get_name();
  }
  if (!place.empty()) place += ": ";
  const std::string help = " `" + name + " --help` shows what there is";
  const std::vector<std::string> rest = app->remaining();
  std::vector<std::string> commands, flags;
  for (const CLI::App* command : app->get_subcommands([](CLI::App*) { return true; }))
    commands.push_back(command->get_name());
  for (const CLI::Option* option : app->get_options())
    for (const std::string& flag : option->get_lnames()) flags.push_back("--" + flag);

  const auto flag =
      std::find_if(rest.begin(), rest.end(), [](const std::string& word) { return word.starts_with('-'); });
  if (flag != rest.end()) {
    const std::string bare = flag->substr(0, flag->find('='));
    return place + "no flag " + bare + ";" + suggestion(bare, flags) + help;
  }
  if (!rest.empty() && !commands.empty())
    return place + "no command \"" + rest[0] + "\";" + suggestion(rest[0], commands) + help;
  if (!rest.empty()) return place + "\"" + rest[0] + "\" is one argument too many;" + help;
  if (!commands.empty()) return place + "a command is missing;" + help;
  return place + error.what() + ";" + help;
}

int run(int argc, char** argv) {
  CLI::App program("SPMD training in C++: trains, launches and watches jobs.", "lockstep");
  program.require_subcommand(1);
  program.set_version_flag("--version", "lockstep " LOCKSTEP_VERSION, "print the version and exit");
  Action action;
#define COMMAND(name) add_##name##_command(program, action);
#include "cli/commands.def"
#undef COMMAND
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& answer) {  // help and version
    return program.exit(answer);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "lockstep: %s\n", usage_error(program, error).c_str());
    return 2;
  }
  return action();
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  try {
    return lockstep::cli::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    return 1;
  }
}
