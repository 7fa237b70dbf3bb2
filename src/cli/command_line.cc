#include "cli/command_line.h"

#include <string>
#include <vector>

#include "cli/usage.h"
#include "lockstep/version.h"

namespace lockstep::cli {

CommandLine::CommandLine() : program_("SPMD training in C++: trains, launches and watches jobs.", "lockstep") {
  program_.require_subcommand(1);
  program_.get_formatter()->column_width(32);
  program_.set_version_flag("-V,--version", "lockstep " LOCKSTEP_VERSION, "print the version and exit");
#define COMMAND(name, title)               \
  add_##name##_command(program_, action_); \
  program_.get_subcommand(#name)->group(title);
#include "cli/commands.def"
#undef COMMAND
}

Action CommandLine::parse(int argc, char** argv) {
  try {
    std::vector<char*> words = with_help_flag(program_, take_launched_command(argc, argv), argv);
    const int count = static_cast<int>(words.size());
    check_words(program_, count, words.data());
    program_.parse(count, words.data());
    return action_;
  } catch (const CLI::Success& answer) {  // help and version
    return [this, answer] { return program_.exit(answer); };
  } catch (const CLI::ParseError& error) {
    throw UsageError(usage_error(program_, error));
  }
}

void check_command_line(const std::vector<std::string>& words) {
  if (!words.empty() && words[0] == "launch") return;  // its words are taken apart while it runs
  std::vector<std::string> copy = words;
  std::string name = "lockstep";
  std::vector<char*> argv = {name.data()};
  for (std::string& word : copy) argv.push_back(word.data());
  CommandLine().parse(static_cast<int>(argv.size()), argv.data());
}

}  // namespace lockstep::cli
