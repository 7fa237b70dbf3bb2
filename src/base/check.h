// throw_error() for mistakes of the caller, and LOCKSTEP_CHECK for bugs of the library. Safe from any thread.
#pragma once

#include <fmt/format.h>

#include "lockstep/error.h"

namespace lockstep {

namespace detail {
// The message, after the line of the user's program if that is known: "train.cc:31: add: ...".
std::string with_caller_line(std::string message);
}  // namespace detail

// Throws Error with a formatted message, which names the line of the user's program if that is known.
template <class... Args>
[[noreturn]] void throw_error(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(detail::with_caller_line(fmt::format(format, std::forward<Args>(args)...)));
}

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);
}  // namespace detail

}  // namespace lockstep

// Checks an invariant of the library, in every build. If it is violated, prints file, line and message, and aborts.
#define LOCKSTEP_CHECK(condition, ...)                                                                 \
  do {                                                                                                 \
    if (!(condition)) [[unlikely]]                                                                     \
      ::lockstep::detail::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
