// What the program tells people while it works, on stderr. Safe from any thread.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/printable.h"

namespace lockstep {

// Writes the text as it is, in one piece. Nothing happens when stderr is closed or full: nobody reads it, and the work
// goes on.
void say_text(const std::string& text);

// Writes lines. Control characters in them are escaped: names in them may come from files and other machines.
template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say_text(printable_lines(fmt::format(format, std::forward<Args>(args)...)));
}

}  // namespace lockstep
