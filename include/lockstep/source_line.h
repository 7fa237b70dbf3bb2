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

namespace detail {

// While it exists, errors of this thread name the line, unless a later one exists. Lines of the library itself and empty
// ones are passed over. Destroyed in reverse order of construction, as temporaries and local variables are.
class CallerLine {
 public:
  explicit CallerLine(SourceLine at) : at_(at), outer_(innermost_) { innermost_ = this; }
  ~CallerLine() { innermost_ = outer_; }
  CallerLine(const CallerLine&) = delete;
  CallerLine& operator=(const CallerLine&) = delete;

  // The line of the user's program that this thread is in; its file is empty if that is unknown.
  static SourceLine current();

 private:
  const SourceLine at_;
  const CallerLine* const outer_;
  static thread_local constinit inline const CallerLine* innermost_ = nullptr;
};

}  // namespace detail

}  // namespace lockstep
