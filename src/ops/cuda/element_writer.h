// Writes the CUDA text of an elementwise program for one element, or for a vector of consecutive elements. An
// ElementWriter writes one text and belongs to one thread.
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
  struct Options {
    // Replaces the first input, which is then not a parameter: an expression for the value of element i.
    std::string given = {};
    // Functions with an APPROXIMATION in elementwise.def may use it.
    bool approximate = false;
    // Consecutive elements per call. `i` is a multiple of it, the statements for each element use `i + q`, and arrays
    // are aligned to that many elements.
    int vector_width = 1;
  };

  explicit ElementWriter(const Program& p) : ElementWriter(p, Options()) {}
  ElementWriter(const Program& p, Options options);

  // Input k is not read from memory: its value is `y{k}[e]`, of the memory type. Call before body() or only_result().
  void compute_input(size_t k);

  // The statements for element `i`, and the expression of the only result.
  std::pair<std::string, std::string> only_result();

  // The statements for element `i`, or for all elements of its vector.
  std::string body();

  // The loads that precede the statements: members of a structure `r`, and the statements that set them. After body().
  const std::string& fields() const { return fields_; }
  const std::string& reads() const { return reads_; }

  // After body(): the inputs read only at element i; the inputs of which a range of results reads only the same range.
  std::vector<size_t> in_place() const;
  std::vector<size_t> own() const;

  // After body(): false if the given value, or a computed input, is needed at another element than i.
  bool is_possible() const { return possible_; }

  // After body(): the bytes loaded per element.
  int64_t read_bytes() const { return read_bytes_; }

 private:
  struct InputView {
    size_t input;
    View view;
  };

  void write(const Eqn& eqn);
  const std::string& operand(ValueId v);
  const char* approximation_of(const Op& op, DType dtype) const;
  void compute(const Eqn& eqn);

  const Program& p_;
  const Shape& shape_;
  const Options options_;
  std::string fields_, reads_;
  bool possible_ = true;
  int64_t read_bytes_ = 0;
  std::vector<bool> computed_;  // by input; empty: none
  std::vector<bool> elsewhere_, others_;
  std::vector<std::optional<InputView>> views_;  // by value: the input it views, if it is not computed
  std::vector<std::string> names_;               // by value: its expression, once written
  std::string body_;
};

}  // namespace lockstep
