#include "structure/language.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <sstream>

namespace lockstep::structure {
namespace {

struct Phrase {
  std::vector<std::string> hints;  // a line without any of these cannot match: much faster to see than by the pattern
  std::regex pattern;
  const char* remedy;
};

Phrase phrase(std::vector<std::string> hints, const char* pattern, const char* remedy) {
  return {std::move(hints), std::regex(pattern, std::regex::icase | std::regex::optimize), remedy};
}

const std::vector<Phrase>& prose_phrases() {
  static const std::vector<Phrase> all = {
      phrase({"body"}, "\\b(no|some|every)body\\b", "name the function, thread, process or user"),
      phrase({"whom", "whosever"}, "\\bwhom\\b|\\bwhosever\\b", "name the function, thread, process or user"),
      phrase({"who"}, "(^|[.;:,(] *|\\b(for|of|by|to|from|and|or|if|says|knows|asks|tells|see) )who\\b",
             "name the function, thread, process or user"),
      phrase({"told", "said"}, "\\b(is|are|was|were|be|been) (told|said)\\b",
             "write what happens: notified, reported, printed, set"),
      phrase({"want of"}, "\\bwant of\\b", "write \"missing\" or \"out of\""),
      phrase({"mend"}, "\\bmend(s|ed|ing)?\\b", "write \"fix\""),
      phrase({"one day"}, "\\bends? one day\\b", "name the deadline"),
      phrase({"in sight", "at hand"}, "\\bin sight\\b|\\bat hand\\b", "write \"visible\" or \"available\""),
      phrase({"so many"}, "\\bso many\\b(?! that)", "write \"N\" or name the number"),
      phrase({"read over"}, "\\bread over\\b", "write \"ignored\""),
      phrase({"of no account"}, "\\bof no account\\b", "write \"ignored\" or \"does not matter\""),
      phrase({"no more"}, "\\bis no more\\b|\\bare no more\\b", "write \"is closed\", \"has ended\" or \"is gone\""),
      phrase({"be had"}, "\\bto be had\\b", "write \"available\""),
      phrase({"self for"}, "\\btakes? (itself|himself) for\\b", "write \"detects\""),
      phrase({"brought near"}, "\\bbrought near\\b", "write \"prefetched\""),
      phrase({"is to be"}, "\\bis to be (asked|changed|believed|told)\\b", "say what to do"),
      phrase({"dear"}, "\\bdear\\b", "write \"expensive\""),
  };
  return all;
}

const std::vector<Phrase>& name_phrases() {
  static const std::vector<Phrase> all = {
      phrase({"body", "who"}, "\\b(no|some|every)body\\b|\\bwhom?\\b",
             "name the function, thread, process or user"),
      phrase({"mend"}, "\\bmend(s|ed)?\\b", "write \"fix\""),
      phrase({"told"}, "\\btold\\b", "write \"notified\" or \"reported\""),
  };
  return all;
}

// Appends one character to the last line; a newline begins the next one.
void append(std::vector<std::string>& lines, char c) {
  if (c == '\n')
    lines.emplace_back();
  else
    lines.back() += c;
}

// "AbortReachesAll" and "abort_reaches_all" -> "abort reaches all ".
std::string words_of(const std::string& name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (i > 0 && std::isupper(c) && std::islower(static_cast<unsigned char>(name[i - 1]))) out += ' ';
    out += c == '_' ? ' ' : static_cast<char>(std::tolower(c));
  }
  return out + ' ';
}

ReadableText readable_cpp(const std::string& text) {
  enum class In { code, line_comment, comment, string, raw } in = In::code;
  ReadableText out{{""}, {""}};
  std::string name, raw_end;
  const auto end_name = [&] {
    if (!name.empty()) out.names.back() += words_of(name);
    name.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i], next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (c == '\n') {
      end_name();
      append(out.prose, '\n');
      append(out.names, '\n');
      if (in == In::line_comment) in = In::code;
      continue;
    }
    if (in == In::code) {
      if (c == '/' && next == '/') {
        in = In::line_comment, ++i;
      } else if (c == '/' && next == '*') {
        in = In::comment, ++i;
      } else if (c == '"' && name == "R") {
        const size_t open = text.find('(', i);
        raw_end = ")" + text.substr(i + 1, open - i - 1) + "\"";
        in = In::raw, i = open, name.clear();
      } else if (c == '"') {
        in = In::string;
      } else if (c == '\'' && !(i > 0 && std::isalnum(static_cast<unsigned char>(text[i - 1])))) {
        i += next == '\\' ? 3 : 2;  // a character, not a digit separator
      } else if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
        name += c;
        continue;
      }
      end_name();
      if (in == In::string || in == In::raw) append(out.prose, ' ');
    } else if (in == In::comment && c == '*' && next == '/') {
      in = In::code, ++i;
    } else if (in == In::string && c == '\\') {
      append(out.prose, ' ');
      ++i;
    } else if (in == In::string && c == '"') {
      in = In::code;
    } else if (in == In::raw && text.compare(i, raw_end.size(), raw_end) == 0) {
      i += raw_end.size() - 1, in = In::code;
    } else {
      append(out.prose, c);
    }
  }
  end_name();
  return out;
}

// Pages as they are; of scripts the comments.
ReadableText readable_lines(const std::string& text, bool comments_only) {
  ReadableText out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t comment = line.find('#');
    out.prose.push_back(!comments_only ? line : comment == std::string::npos ? "" : line.substr(comment));
  }
  out.names.resize(out.prose.size());
  return out;
}

void search(const std::string& path, const std::vector<std::string>& lines, const std::vector<Phrase>& phrases,
            std::vector<std::string>& out) {
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string lower = lines[i];
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const auto has = [&](const std::string& hint) { return lower.find(hint) != std::string::npos; };
    for (const Phrase& each : phrases)
      if (std::smatch match;
          std::any_of(each.hints.begin(), each.hints.end(), has) && std::regex_search(lines[i], match, each.pattern))
        out.push_back(fmt::format("{}:{}: \"{}\": {}", path, i + 1, match[0].str(), each.remedy));
  }
}

}  // namespace

ReadableText readable_text(const std::string& path, const std::string& text) {
  const auto is = [&](const char* extension) { return path.ends_with(extension); };
  if (is(".h") || is(".cc") || is(".def") || is(".cuh") || is(".proto")) return readable_cpp(text);
  return readable_lines(text, !is(".md"));
}

std::vector<std::string> find_phrases(const std::string& path, const std::string& text) {
  std::vector<std::string> out;
  const ReadableText readable = readable_text(path, text);
  search(path, readable.prose, prose_phrases(), out);
  search(path, readable.names, name_phrases(), out);
  return out;
}

}  // namespace lockstep::structure
