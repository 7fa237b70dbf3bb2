#include "command/usage.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/names.h"
#include "command/command.h"
#include "command/help_sections.h"
#include "train/config.h"

namespace lockstep::cli {
namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::App* command : listed_commands(app)) out.push_back(command->get_name());
  return out;
}

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& flag : option->get_lnames()) out.push_back("--" + flag);
  return out;
}

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  const auto found = app.get_subcommands([&](const CLI::App* each) { return each->get_name() == name; });
  return found.empty() ? nullptr : found[0];
}

// A switch such as `--strict` takes no value or one of these.
bool is_switch_value(std::string_view text) {
  for (const std::string_view each : {"true", "false", "on", "off", "yes", "no", "1", "0"})
    if (text == each) return true;
  return false;
}

// `place` is the command with a colon: `data fetch: `.
void check_word(const CLI::App& app, const std::string& place, const std::string& word) {
  const size_t equals = word.find('=');
  if (!word.starts_with("--") || equals == word.npos) return;
  const std::string flag = word.substr(0, equals), value = word.substr(equals + 1);
  if (value.empty()) throw UsageError(place + word + " has no value; give one, or omit the flag");
  const CLI::Option* option = app.get_option_no_throw(flag);
  if (option && option->get_items_expected_max() == 0 && !is_switch_value(value))
    throw UsageError(
        fmt::format("{}{}: \"{}\" is not true or false; write {} alone to turn it on", place, flag, value, flag));
}

// The message about words that match no flag, argument or subcommand; empty if there are none.
std::string describe_extras(const CLI::App& app, const std::string& place, const std::string& help) {
  const std::vector<std::string> rest = app.remaining();
  const std::vector<std::string> commands = command_names(app);
  const auto is_flag = [](const std::string& word) { return word.size() > 1 && word.starts_with('-') && word != "--"; };
  if (!rest.empty() && !commands.empty() && !is_flag(rest[0]))
    return fmt::format("{}unknown command \"{}\";{}{}", place, rest[0], suggestion(rest[0], commands), help);
  if (const auto flag = std::ranges::find_if(rest, is_flag); flag != rest.end()) {
    const std::string bare = flag->substr(0, flag->find('='));
    if (const std::string reason = why_not_in_user_program(bare.substr(std::min<size_t>(2, bare.size())));
        !reason.empty())
      return fmt::format("{}{}: {}; remove the flag", place, bare, reason);
    return fmt::format("{}unknown flag {};{}{}", place, bare, suggestion(bare, flag_names(app)), help);
  }
  if (!rest.empty()) return fmt::format("{}unexpected argument \"{}\";{}", place, rest[0], help);
  return "";
}

// The message about a flag with too few or too many values, for which the parser says
// `--learning-rate: 1 required X missing` or `--config: At Most 1 required but received 2`; empty for other errors.
std::string describe_value_count(const CLI::ParseError& error) {
  const std::string text = error.what();
  const size_t colon = text.find(": ");
  if (!dynamic_cast<const CLI::ArgumentMismatch*>(&error) || colon == text.npos) return "";
  const std::string flag = text.substr(0, colon);
  if (text.ends_with(" missing")) return flag + " needs a value";
  return text.find(" required but received ") == text.npos ? "" : flag + " is given more than once; keep one";
}

}  // namespace

std::vector<char*> replace_help_words(const CLI::App& program, int argc, char** argv) {
  static char help[] = "--help";
  std::vector<char*> words(argv, argv + argc);
  const bool help_first = argc > 1 && std::string_view(argv[1]) == "help";
  if (help_first) words.erase(words.begin() + 1);
  const CLI::App* app = &program;
  size_t i = 1;
  for (; i < words.size(); ++i) {
    const CLI::App* command = find_command(*app, words[i]);
    if (!command && (!help_first || words[i] == std::string_view(help))) break;
    if (!command)
      throw UsageError(fmt::format("help: unknown command \"{}\";{} see `{} --help`", words[i],
                                   suggestion(words[i], command_names(*app)), program.get_name()));
    app = command;
  }
  std::error_code ignored;
  const bool help_last = i > 1 && i + 1 == words.size() && std::string_view(words[i]) == "help" &&
                         !std::filesystem::exists("help", ignored);
  if (help_last) words.pop_back();
  const bool incomplete = argc == 1 && program.get_require_subcommand_min() > 0;
  if (help_first || help_last || incomplete) words.push_back(help);
  return words;
}

void check_words(const CLI::App& program, int argc, char** argv) {
  const CLI::App* app = &program;
  std::string place;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") return;
    if (const CLI::App* command = find_command(*app, word)) {
      app = command;
      place = (place.empty() ? "" : place.substr(0, place.size() - 2) + " ") + word + ": ";
    } else {
      check_word(*app, place, word);
    }
  }
}

std::string usage_error(const CLI::App& program, const CLI::ParseError& error) {
  // A word that the parser could not use is the likely cause of both errors.
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) || dynamic_cast<const CLI::RequiredError*>(&error);
  const CLI::App* app = &program;
  std::string name = program.get_name(), place;
  while (!app->get_subcommands().empty() && !(extras && !app->remaining().empty())) {
    app = app->get_subcommands().front();
    name += " " + app->get_name();
    place += (place.empty() ? "" : " ") + app->get_name();
  }
  if (!place.empty()) place += ": ";
  const std::string help = " see `" + name + " --help`";
  if (extras)
    if (std::string text = describe_extras(*app, place, help); !text.empty()) return text;
  if (dynamic_cast<const CLI::RequiredError*>(&error) && !command_names(*app).empty())
    return place + "a command is missing;" + help;
  if (const std::string text = describe_value_count(error); !text.empty()) return place + text + ";" + help;
  const std::string text = error.what();
  return place + text + (text.ends_with('?') ? "" : ";") + help;
}

}  // namespace lockstep::cli
