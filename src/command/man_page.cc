#include "command/man_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "command/help.h"
#include "command/help_sections.h"

namespace lockstep::cli {
namespace {

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// Text that groff prints as it is. Hyphens become minus signs, which can be copied to a command line.
std::string literal(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\(rs";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '"':
        out += "\\(dq";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      default:
        out += c;
    }
  }
  return out.starts_with('.') ? "\\&" + out : out;
}

std::string bold(const std::string& text) { return text.empty() ? "" : "\\fB" + literal(text) + "\\fP"; }

// A line of running text: `code` is bold.
std::string prose(const std::string& text) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const size_t open = text.find('`', at), close = open == text.npos ? text.npos : text.find('`', open + 1);
    if (close == text.npos) return out + literal(text.substr(at));
    out += literal(text.substr(at, open - at)) + bold(text.substr(open + 1, close - open - 1));
    at = close + 1;
  }
  return out;
}

// The names of a row: flags are bold, the value is in italics. Lists of values may be broken after each bar.
std::string row_name(const std::string& name) {
  const size_t space = name.rfind(' ');
  if (!name.starts_with('-') || space == name.npos || name[space - 1] == ',') return bold(name);
  std::string value = literal(name.substr(space + 1));
  for (size_t at = value.find('|'); at != value.npos; at = value.find('|', at + 3)) value.insert(at + 1, "\\:");
  return bold(name.substr(0, space)) + " \\fI" + value + "\\fP";
}

void append_row(std::string& out, const std::string& name, const std::string& description) {
  out += ".TP\n" + name + "\n" + prose(description.empty() ? "No description." : description) + "\n";
}

struct Footer {
  std::string text, examples;                                        // in roff
  std::vector<std::pair<std::string, std::string>> exit_codes = {};  // "0", "success"
};

// The parts of a footer (add_footer()): paragraphs, `Exit codes:` with its rows, `Examples:` with its lines.
Footer parse_footer(const std::string& footer) {
  Footer out;
  std::istringstream lines(footer);
  enum class Part { text, exit_codes, examples } part = Part::text;
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(' ');
    if (line == kExamples) {
      part = Part::examples;
    } else if (line == "Exit codes:") {
      part = Part::exit_codes;
    } else if (begin == line.npos) {
      if (part == Part::text && !out.text.empty()) out.text += ".PP\n";
    } else if (part == Part::examples) {
      out.examples += literal(line.substr(begin)) + "\n";
    } else if (part == Part::exit_codes && begin > 0) {
      const size_t gap = std::min(line.find("  ", begin), line.size());
      const size_t text = std::min(line.find_first_not_of(' ', gap), line.size());
      out.exit_codes.emplace_back(line.substr(begin, gap - begin), line.substr(text));
    } else {
      part = Part::text;
      // Indented lines are rows of a list, which keep their lines.
      out.text += (begin > 0 ? ".br\n" : "") + prose(line.substr(begin)) + "\n";
    }
  }
  if (out.text.ends_with(".PP\n")) out.text.erase(out.text.size() - 4);
  return out;
}

std::string page_name(const std::string& path) {
  std::string out = path;
  std::ranges::replace(out, ' ', '-');
  return out;
}

// Arguments and commands are sections; groups of flags are parts of the options.
void append_sections(std::string& out, const CLI::App& app) {
  bool has_options = false;
  for (const HelpSection& section : sections_of(app)) {
    if (section.rows.empty()) continue;
    const bool flags = section.rows[0].name.starts_with('-');
    if (flags && !has_options) out += ".SH OPTIONS\n";
    if (flags)
      out += has_options || section.title != "Options" ? fmt::format(".SS {}\n", literal(section.title)) : "";
    else
      out += fmt::format(".SH {}\n", literal(upper(section.title == "Arguments" || section.title == "Commands"
                                                       ? section.title
                                                       : section.title + " commands")));
    has_options = has_options || flags;
    for (const HelpRow& row : section.rows) append_row(out, row_name(row.name), as_sentence(row.description));
  }
}

std::string see_also(const CLI::App& app, const std::string& path) {
  std::vector<std::string> names;
  if (const size_t space = path.rfind(' '); space != path.npos) names.push_back(page_name(path.substr(0, space)));
  for (const CLI::App* command : listed_commands(app)) names.push_back(page_name(path + " " + command->get_name()));
  std::string out;
  for (const std::string& name : names) out += fmt::format("{}\\fB{}\\fP(1)", out.empty() ? "" : ",\n", literal(name));
  return out;
}

std::string page_text(const CLI::App& app, const std::string& path, const std::string& version,
                      const std::vector<ManSection>& sections) {
  const auto* const formatter = dynamic_cast<const HelpFormatter*>(app.get_formatter().get());
  const std::string usage = usage_of(app, path, formatter ? formatter->usage_end() : "");
  const Footer footer = parse_footer(app.get_footer());
  std::string out = fmt::format(
      // Names of flags, files and values are neither hyphenated nor spread over the line.
      ".TH {} 1 \"\" \"{}\" \"User commands\"\n.nh\n.ad l\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}{}\n.SH "
      "DESCRIPTION\n{}\n",
      literal(upper(page_name(path))), literal(version), literal(page_name(path)), literal(app.get_description()),
      bold(path), literal(usage.substr(path.size())), prose(as_sentence(app.get_description())));
  if (!footer.text.empty()) out += ".PP\n" + footer.text;
  append_sections(out, app);
  for (const ManSection& section : sections) {
    out += fmt::format(".SH {}\n{}\n", literal(upper(section.title)), prose(section.introduction));
    for (const auto& [name, description] : section.rows) append_row(out, bold(name), as_sentence(description));
  }
  if (!footer.exit_codes.empty()) out += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : footer.exit_codes) append_row(out, bold(code), as_sentence(meaning));
  if (!footer.examples.empty()) out += ".SH EXAMPLES\n.nf\n" + footer.examples + ".fi\n";
  if (const std::string others = see_also(app, path); !others.empty()) out += ".SH SEE ALSO\n" + others + "\n";
  return out;
}

void append_pages(std::vector<ManPage>& out, const CLI::App& app, const std::string& path, const std::string& version,
                  const std::vector<ManSection>& sections) {
  out.push_back({page_name(path), page_text(app, path, version, sections)});
  for (const CLI::App* command : listed_commands(app))
    append_pages(out, *command, path + " " + command->get_name(), version, {});
}

}  // namespace

std::vector<ManPage> man_pages(const CLI::App& program, const std::string& version,
                               const std::vector<ManSection>& sections) {
  std::vector<ManPage> out;
  append_pages(out, program, program.get_name(), version, sections);
  return out;
}

}  // namespace lockstep::cli
