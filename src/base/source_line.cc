#include "lockstep/source_line.h"

#include <string_view>

#include "base/check.h"

namespace lockstep {

std::string to_string(const SourceLine& at) {
  std::string_view file = at.file;
  file.remove_prefix(file.find_last_of('/') + 1);
  return std::string(file) + ":" + std::to_string(at.line);
}

namespace detail {
namespace {

// Sources of the library are compiled with -fmacro-prefix-map; its headers are in a folder lockstep/.
bool is_library(std::string_view file) {
  return file.starts_with("lockstep:") || (file.ends_with(".h") && file.find("/lockstep/") != std::string_view::npos);
}

}  // namespace

SourceLine CallerLine::current() {
  for (const CallerLine* line = innermost_; line; line = line->outer_)
    if (line->at_.file[0] && !is_library(line->at_.file)) return line->at_;
  return {};
}

std::string with_caller_line(std::string message) {
  const SourceLine at = CallerLine::current();
  return at.file[0] ? to_string(at) + ": " + message : message;
}

}  // namespace detail
}  // namespace lockstep
