// SourceLine: the line of the user's program on which a call stands, for errors that name it. A plain value.
//
//   void f(int x, SourceLine at = SourceLine::here());   // `at` is where f is called
#pragma once

#include <string>

namespace lockstep {

struct SourceLine {
  const char* file = "";
  int line = 0;

  // std::source_location is not there with every compiler that this builds with.
  static constexpr SourceLine here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// "train.cc:31", without folders.
std::string to_string(const SourceLine&);

}  // namespace lockstep
