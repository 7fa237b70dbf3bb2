// What the program tells people while it works, on stderr. Safe from any thread.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace lockstep {

// Writes the text in one piece. Nothing happens when stderr is closed or full: nobody reads it, and the work goes on.
void say_text(const std::string& text);

template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say_text(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lockstep
