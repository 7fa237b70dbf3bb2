// CEmitter: what the rows of rows.def write their C++ statements with. The program has fixed shapes. Values are arrays
// of float or int in two pieces of memory, `floats` and `ints`; values of one repeated number are literals. Not
// thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace lockstep {

class CEmitter {
 public:
  explicit CEmitter(const Program& program);

  // Binds an input of the program to an expression, a pointer.
  void bind(ValueId value, std::string expression) { values_[value].text = std::move(expression); }
  // Writes equation `index`. Throws Error, naming the op, when it cannot be written.
  void emit(size_t index);
  // A pointer to the elements of a value, which get an array if it is a literal.
  std::string array(ValueId value);

  const std::string& code() const { return code_; }
  int64_t float_count() const { return floats_.size; }
  int64_t int_count() const { return ints_.size; }

  // The current equation.
  const Attrs& attrs() const { return eqn_->attrs; }
  size_t operands() const { return eqn_->in.size(); }
  const Type& in_type(size_t i) const { return program_.types[eqn_->in[i]]; }
  const Type& out_type() const { return program_.types[eqn_->out[0]]; }
  const Eqn& eqn() const { return *eqn_; }
  std::string in(size_t i) { return array(eqn_->in[i]); }
  // The expression for element `index` of an operand.
  std::string element(size_t i, std::string_view index) const;
  bool is_literal(size_t i) const { return values_[eqn_->in[i]].is_literal; }
  // Makes the array of the result and returns its name.
  std::string result() { return declare(eqn_->out[0]); }
  void set_literal(std::string text) { values_[eqn_->out[0]] = {std::move(text), true}; }
  // The result is the operand.
  void set_alias() { values_[eqn_->out[0]] = values_[eqn_->in[0]]; }
  // Appends a line of code.
  void line(std::string_view text) { code_ += "  " + std::string(text) + "\n"; }

  // Throws Error: this equation cannot be written for the reason.
  [[noreturn]] void fail(const std::string& reason) const;

 private:
  struct Named {
    std::string text;
    bool is_literal = false;
  };
  // Memory of one element type, in elements. Freed blocks are used again.
  struct Memory {
    int64_t size = 0;
    std::vector<std::pair<int64_t, int64_t>> free = {};  // begin, size

    int64_t take(int64_t count);
  };
  struct Block {
    Memory* memory = nullptr;
    int64_t begin = 0, size = 0;
  };

  std::string declare(ValueId value);
  void release_after(size_t index);

  const Program& program_;
  std::vector<Named> values_;
  std::vector<ValueId> owners_;   // of each value: itself, or the value that it is an alias of
  std::vector<size_t> last_use_;  // of each owner: an equation, or the number of equations for an output
  std::vector<Block> blocks_;
  Memory floats_, ints_;
  std::string code_;
  const Eqn* eqn_ = nullptr;
};

// "float" or "int". Throws Error for f64 and 16-bit floats.
std::string_view c_type(DType dtype);

// A float as a literal that gives exactly this value.
std::string c_literal(float value);

}  // namespace lockstep
