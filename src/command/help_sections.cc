#include "command/help_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace lockstep::cli {
namespace {

// "FILE", "auto|cpu|cuda"; of a list of choices, which the parser describes as "TEXT:{a,b}", "a|b".
std::string value_name(const CLI::Option& option) {
  if (option.get_type_size_max() == 0) return "";
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  if (open == type.npos || close == type.npos) return type;
  std::string out = type.substr(open + 1, close - open - 1);
  std::replace(out.begin(), out.end(), ',', '|');
  return out;
}

std::string flag_name(const CLI::Option& option) {
  std::string out;
  for (const std::string& name : option.get_snames()) out += fmt::format("{}-{}", out.empty() ? "" : ", ", name);
  for (const std::string& name : option.get_lnames()) out += fmt::format("{}--{}", out.empty() ? "" : ", ", name);
  const std::string value = value_name(option);
  return value.empty() ? out : out + " " + value;
}

std::string argument_name(const CLI::Option& option) {
  const std::string value = value_name(option);
  return option.get_name(true) + (value.find('|') == value.npos ? "" : " " + value);
}

}  // namespace

std::vector<HelpSection> sections_of(const CLI::App& app) {
  HelpSection arguments{"Arguments", {}}, general{"Options", {}};
  std::vector<HelpSection> commands, groups;
  const auto section = [](std::vector<HelpSection>& all, const std::string& title) -> HelpSection& {
    const auto found = std::ranges::find(all, title, &HelpSection::title);
    if (found != all.end()) return *found;
    return all.emplace_back(HelpSection{title, {}});
  };
  for (const CLI::Option* option : app.get_options()) {
    const bool flag = !option->get_snames().empty() || !option->get_lnames().empty(),
               argument = option->get_positional();
    if (argument) arguments.rows.push_back({argument_name(*option), option->get_description()});
    if (!flag) continue;
    const std::string description = argument
                                        ? "same as " + option->get_name(true)
                                        : option->get_description() + (option->get_required() ? " (required)" : "");
    HelpSection& into = option->get_group() == "Options" ? general : section(groups, option->get_group());
    into.rows.push_back({flag_name(*option), description});
  }
  for (const CLI::App* command : listed_commands(app)) {
    const std::string& group = command->get_group();
    section(commands, group == "Subcommands" ? "Commands" : group)
        .rows.push_back({command->get_name(), command->get_description()});
  }
  std::vector<HelpSection> out = {arguments};
  out.insert(out.end(), commands.begin(), commands.end());
  out.insert(out.end(), groups.begin(), groups.end());
  out.push_back(general);
  return out;
}

std::string usage_of(const CLI::App& app, const std::string& name, const std::string& end) {
  std::string out = name;
  if (!listed_commands(app).empty()) out += app.get_require_subcommand_min() > 0 ? " COMMAND" : " [COMMAND]";
  out += " [OPTIONS]";
  if (!end.empty()) return out + " " + end;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string word = option->get_name(true) + (option->get_items_expected_max() > 1 ? "..." : "");
    out += option->get_required() ? " " + word : " [" + word + "]";
  }
  return out;
}

std::string as_sentence(std::string text) {
  if (text.empty()) return text;
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text.ends_with('.') ? text : text + '.';
}

std::vector<const CLI::App*> listed_commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); });
}

}  // namespace lockstep::cli
