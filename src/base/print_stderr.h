// Messages on standard error. Safe from any thread.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/printable.h"

namespace lockstep {

// Writes the text unchanged, in one call. Ignores errors, such as a closed stream: a lost message must not end the
// program.
void write_stderr(const std::string& text);

// Writes formatted lines. Escapes control characters, because names may come from files and other hosts.
template <class... Args>
void print_stderr(fmt::format_string<Args...> format, Args&&... args) {
  write_stderr(printable_lines(fmt::format(format, std::forward<Args>(args)...)));
}

}  // namespace lockstep
