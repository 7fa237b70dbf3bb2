// TextParser: reads the parts that texts of programs and of schedules share: values, types, ops with attributes. Used by
// one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "program/op.h"

namespace lockstep {

class TextParser {
 public:
  // `text` must outlive the parser. Ops are looked up in `ops`.
  TextParser(std::string_view text, std::span<const Op* const> ops) : text_(text), ops_(ops) {}

  // "program(...) {...}". Types are not checked.
  Program program();
  // An op and its attributes: "reduce_sum[axes=[0]]".
  std::pair<const Op*, Attrs> op();
  Attr attr();
  Type type();
  int64_t reference();  // "%3"
  int64_t integer();
  std::vector<int64_t> integers();  // "[1,2]"
  std::string identifier();
  void word(std::string_view wanted);
  // Whether the next identifier is `wanted`, which is then skipped.
  bool accept_word(std::string_view wanted);
  // The next character, without skipping blanks.
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool accept(char c);
  void expect(char c);
  void skip();         // blanks and ends of lines
  void skip_blanks();  // only blanks
  void expect_end();

  // Throws Error with the line and column.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  Program equations();
  Attr number();
  Attr string();

  std::string_view text_;
  std::span<const Op* const> ops_;
  size_t at_ = 0;
  int depth_ = 0;
};

// Prints an op with its attributes; the lines of sub-programs are indented by `indent`.
std::string print_op(const Op& op, const Attrs& attrs, const std::string& indent);

}  // namespace lockstep
