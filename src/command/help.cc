#include "command/help.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "base/check.h"
#include "base/os/environment.h"
#include "base/terminal_style.h"
#include "command/help_sections.h"

namespace lockstep::cli {
namespace {

constexpr size_t kWidthWithoutTerminal = 80, kMinWidth = 40;
constexpr size_t kMaxNameColumns = 28;  // longer names get a line of their own

// A heading, in bold on a terminal.
std::string heading(const std::string& text) { return painted(text, Paint::bold, terminal_style(STDOUT_FILENO).color); }

size_t terminal_width() {
  size_t width = 0;
  winsize size = {};
  if (const std::optional<std::string> columns = environment_variable("COLUMNS"))
    width = std::strtoul(columns->c_str(), nullptr, 10);
  else if (::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
    width = size.ws_col;
  return width == 0 || width > 10'000 ? kWidthWithoutTerminal : std::max(width, kMinWidth);
}

// The words of a text. A word that is longer than `room` is split after each '|': such are lists of values.
std::vector<std::string> words_to_wrap(const std::string& text, size_t room, std::vector<bool>& glued) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string word, value; in >> word;) {
    if (word == "(default:" && in >> value) word += " " + value;  // stays on one line
    bool first = true;
    while (word.size() > room) {
      const size_t bar = word.rfind('|', room - 1);
      if (bar == word.npos) break;
      out.push_back(word.substr(0, bar + 1));
      glued.push_back(!first);
      word.erase(0, bar + 1);
      first = false;
    }
    out.push_back(word);
    glued.push_back(!first);
  }
  return out;
}

// Appends the text to the last line of `out`, which has `column` columns, and breaks lines between words. Later lines
// are indented by `indent`.
void append_wrapped(std::string& out, const std::string& text, size_t column, size_t indent, size_t width) {
  std::vector<bool> glued;  // no space before this word
  const std::vector<std::string> words = words_to_wrap(text, width > indent ? width - indent : 1, glued);
  bool at_start = true;
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t gap = at_start || glued[i] ? 0 : 1;
    if (!at_start && column + gap + words[i].size() > width) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else {
      out.append(gap, ' ');
      column += gap;
    }
    out += words[i];
    column += words[i].size();
    at_start = false;
  }
  out += '\n';
}

void append_section(std::string& out, const HelpSection& section, size_t name_columns, size_t width) {
  if (section.rows.empty()) return;
  out += fmt::format("\n{}\n", heading(section.title + ":"));
  const size_t indent = name_columns + 4;
  for (const HelpRow& row : section.rows) {
    out += "  ";
    if (row.name.size() > name_columns) {
      append_wrapped(out, row.name, 2, 4, width);
      out.append(indent, ' ');
    } else {
      out += fmt::format("{:<{}}  ", row.name, name_columns);
    }
    append_wrapped(out, row.description, indent, indent, width);
    while (out.ends_with(" \n")) out.erase(out.size() - 2, 1);
  }
}

// The column at which the continuation of a line of the footer begins.
size_t hanging_indent(const std::string& line) {
  const size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const size_t gap = line.find("  ", begin);
  return gap == line.npos ? begin : std::min(line.find_first_not_of(' ', gap), line.size());
}

void append_footer(std::string& out, const std::string& footer, size_t width) {
  if (footer.empty()) return;
  out += '\n';
  std::istringstream lines(footer);
  bool examples = false;
  for (std::string line; std::getline(lines, line);) {
    examples = examples || line == kExamples;
    if (examples) {
      out += (line == kExamples ? heading(line) : line) + '\n';
      continue;
    }
    const size_t indent = hanging_indent(line);
    out += line.substr(0, indent);
    append_wrapped(out, line.substr(indent), indent, indent, width);
  }
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const {
  const size_t width = terminal_width();
  std::string out;
  append_wrapped(out, as_sentence(app->get_description()), 0, 0, width);
  out += "\n" + heading("Usage:") + " ";
  append_wrapped(out, usage_of(*app, name, usage_end_), 7, 7, width);
  const std::vector<HelpSection> sections = sections_of(*app);
  size_t name_columns = 0;
  for (const HelpSection& section : sections)
    for (const HelpRow& row : section.rows)
      if (row.name.size() <= kMaxNameColumns) name_columns = std::max(name_columns, row.name.size());
  for (const HelpSection& section : sections) append_section(out, section, name_columns, width);
  append_footer(out, app->get_footer(), width);
  return out;
}

void group_flags(CLI::App& command, const std::string& title, const std::vector<std::string>& flags) {
  for (const std::string& flag : flags) command.get_option(flag)->group(title);
}

void add_footer(CLI::App& command, const std::string& text) {
  const std::string before = command.get_footer();
  command.footer(before.empty() ? text : before + "\n\n" + text);
}

void add_examples(CLI::App& command, const std::vector<std::string>& examples) {
  LOCKSTEP_CHECK(examples.size() >= 2, "{} has {} examples", command.get_name(), examples.size());
  std::string text = kExamples;
  for (const std::string& each : examples) text += "\n  " + each;
  add_footer(command, text);
}

}  // namespace lockstep::cli
