// What help texts and manual pages say about a command, from its parser. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace lockstep::cli {

// The title of the examples at the end of a footer.
inline constexpr const char* kExamples = "Examples:";

// A flag, an argument or a subcommand with its description: "-o, --output FILE", "file to write".
struct HelpRow {
  std::string name, description;
};

struct HelpSection {
  std::string title;
  std::vector<HelpRow> rows;
};

// Arguments, subcommands by group, flags by group, other flags.
std::vector<HelpSection> sections_of(const CLI::App& app);

// "lockstep train [COMMAND] [OPTIONS] [CONFIG]". `end` replaces the arguments, unless it is empty.
std::string usage_of(const CLI::App& app, const std::string& name, const std::string& end);

// The text with a capital letter at its start and a full stop at its end.
std::string as_sentence(std::string text);

// The subcommands, without hidden ones, whose group has no name.
std::vector<const CLI::App*> listed_commands(const CLI::App& app);

}  // namespace lockstep::cli
