#include "jobs/lines.h"

#include <algorithm>

namespace lockstep {
namespace {

// The visible part of a redrawn line: the text after the last carriage return that is not at the end.
std::string_view last_drawn(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  if (const size_t at = line.rfind('\r'); at != line.npos) line.remove_prefix(at + 1);
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view erase : {"\033[K", "\033[J"}) {
      if (line.starts_with(erase)) line.remove_prefix(erase.size()), found = true;
      if (line.ends_with(erase)) line.remove_suffix(erase.size()), found = true;
    }
  }
  return line;
}

}  // namespace

void LineSplitter::add(std::string_view bytes, const LineSink& sink) {
  while (!bytes.empty()) {
    const size_t room = kMaxLineBytes - rest_.size();
    const size_t newline = bytes.substr(0, room + 1).find('\n');
    if (newline == bytes.npos && bytes.size() <= room) {
      rest_ += bytes;
      return;
    }
    const bool ends = newline != bytes.npos;
    const size_t taken = ends ? newline : room;
    std::string_view text = bytes.substr(0, taken);
    if (!rest_.empty()) text = rest_ += text;
    sink({text, !continued_, ends});
    rest_.clear();
    continued_ = !ends;
    bytes.remove_prefix(ends ? taken + 1 : taken);
  }
}

void LineSplitter::finish(const LineSink& sink) {
  if (!rest_.empty() || continued_) sink({rest_, !continued_, true});
  rest_.clear();
  continued_ = false;
}

void TerminalLines::add(std::string_view bytes, const LineSink& sink) {
  for (size_t newline; (newline = bytes.find('\n')) != bytes.npos; bytes.remove_prefix(newline + 1)) {
    rest_ += bytes.substr(0, newline);
    sink({last_drawn(rest_)});
    rest_.clear();
  }
  rest_ += bytes;
  if (rest_.size() <= kMaxLineBytes) return;
  rest_ = std::string(last_drawn(rest_));
  if (rest_.size() <= kMaxLineBytes) return;
  sink({rest_});
  rest_.clear();
}

void TerminalLines::finish(const LineSink& sink) {
  if (!unfinished().empty()) sink({unfinished()});
  rest_.clear();
}

std::string_view TerminalLines::unfinished() const { return last_drawn(rest_); }

std::string without_escapes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\033' || i + 1 >= text.size() || text[i + 1] != '[') {
      out += text[i];
      continue;
    }
    // An escape sequence ends with the first character from @ to ~.
    for (i += 2; i < text.size() && (text[i] < '@' || text[i] > '~');) ++i;
  }
  return out;
}

}  // namespace lockstep
