// Whether tests repeat random faults many times and wait for slow events (`./dev test --long`). Safe from any thread.
#pragma once

#include <cstdlib>
#include <string_view>

namespace lockstep {

inline bool long_tests() {
  const char* const text = std::getenv("LOCKSTEP_LONG_TESTS");
  return text && std::string_view(text) == "1";
}

}  // namespace lockstep
