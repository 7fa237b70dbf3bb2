// SourceLine: the line of a call in the user's program, for error messages. A plain value.
//
//   void f(int x, SourceLine at = SourceLine::here());   // `at` is where f is called
#pragma once

#include <string>

namespace lockstep {

struct SourceLine {
  const char* file = "";
  int line = 0;

  // Not std::source_location, which some supported compilers lack.
  static constexpr SourceLine here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// "train.cc:31", without folders.
std::string to_string(const SourceLine&);

}  // namespace lockstep
