// The text of an elementwise program for one element, or for several side by side. An ElementWriter is for one text, by
// one thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/affine.h"
#include "program/program.h"

namespace lockstep {

class ElementWriter {
 public:
  struct How {
    std::string given = {};  // what stands for the first input, which is then no parameter: a value for element i
    bool quick = false;      // divisions, roots and tanh may be those of quick_div_
    // So many elements side by side at a time: i is a multiple of that, and what is done for each is for i + q. Arrays
    // begin at a multiple of so many, too.
    int side = 1;
  };

  explicit ElementWriter(const Program& p) : ElementWriter(p, How()) {}
  ElementWriter(const Program& p, How how);

  // Input k is not read but `y{k}[e]`, of the type in memory. Before body() or only_result().
  void compute_input(size_t k);

  // What is done for element `i`, with the expression of the only result.
  std::pair<std::string, std::string> only_result();

  // What is done for element `i`, or for all of its side.
  std::string body();

  // What is read before, after body(): members of a structure `r`, and how they are set.
  const std::string& fields() const { return fields_; }
  const std::string& reads() const { return reads_; }

  // The inputs of which element i is read and no other, after body(); those of which a range reads its own.
  std::vector<size_t> in_place() const;
  std::vector<size_t> own() const;

  // False after body() when the given value, or one that is computed, was wanted elsewhere than at element i.
  bool is_possible() const { return possible_; }

  // Of what is read, after body().
  int64_t read_bytes() const { return read_bytes_; }

 private:
  struct Read {
    size_t input;
    View view;
  };

  void write(const Eqn& eqn);
  const std::string& operand(ValueId v);
  bool has_quick(const Op& op) const;
  void compute(const Eqn& eqn);

  const Program& p_;
  const Shape& shape_;
  const How how_;
  std::string fields_, reads_;
  bool possible_ = true;
  int64_t read_bytes_ = 0;
  std::vector<bool> computed_;  // by input; empty: none
  std::vector<bool> elsewhere_, others_;
  std::vector<std::optional<Read>> views_;  // by value: what is read, not computed
  std::vector<std::string> names_;          // by value: its expression, once written
  std::string body_;
};

}  // namespace lockstep
