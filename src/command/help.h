// Help texts: the formatter that prints them, and the examples that end each of them. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace lockstep::cli {

// Prints the help of a command: description, usage, arguments, subcommands, flags by group, footer. Lines are wrapped
// between words at the width of the terminal ($COLUMNS, or what the terminal reports; 80 without a terminal).
// A command inherits the formatter of its parent.
class HelpFormatter final : public CLI::FormatterBase {
 public:
  // `usage_end` replaces the arguments at the end of the usage line, such as "-- COMMAND [ARGUMENTS]".
  explicit HelpFormatter(std::string usage_end = "") : usage_end_(std::move(usage_end)) {}

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  const std::string& usage_end() const { return usage_end_; }

 private:
  std::string usage_end_;
};

// Lists these flags under a title of their own in the help. REQUIRES: the command has the flags.
void group_flags(CLI::App& command, const std::string& title, const std::vector<std::string>& flags);

// Appends a paragraph to the text below the flags. Each line is wrapped. A continuation line is indented like the text
// after the first gap of two or more spaces: `  75  a process failed ...`.
void add_footer(CLI::App& command, const std::string& text);

// Appends the examples, which end the help. REQUIRES: at least two, each at most 78 columns: they are not wrapped.
void add_examples(CLI::App& command, const std::vector<std::string>& examples);

}  // namespace lockstep::cli
