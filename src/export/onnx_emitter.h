// OnnxEmitter: what the rows of rows.def write their ONNX nodes with. Not thread-safe.
//
// A value has a compact form if it repeats itself: a tensor of rank 0, or of the same rank with extents of 1. ONNX's
// elementwise operators broadcast, so only other operators need the full form, which is made when it is first used.
#pragma once

#include <string>
#include <vector>

#include "export/onnx_graph.h"

namespace lockstep {

class OnnxEmitter {
 public:
  enum class Form { scalar, compact, full };

  OnnxEmitter(OnnxGraph& graph, const SymbolicProgram& program);

  OnnxGraph& graph() { return graph_; }
  // Binds an input of the program.
  void bind(ValueId value, const std::string& name) { set_value(value, name, Form::full); }
  // Writes equation `index`. Throws Error, naming the op, when it cannot be written.
  void emit(size_t index);
  // The full form of a value.
  std::string full_value(ValueId value);

  // The current equation.
  const SymbolicEqn& eqn() const { return *eqn_; }
  const Attrs& attrs() const { return eqn_->eqn.attrs; }
  const Extents& extents(const char* attribute) const { return eqn_->extents.at(attribute); }
  // An attribute whose numbers do not depend on the sizes. Throws Error when they do.
  std::vector<int64_t> integers(const char* attribute) const;
  int64_t integer(const char* attribute) const { return integers(attribute).at(0); }
  size_t operands() const { return eqn_->eqn.in.size(); }
  const Type& in_type(size_t i) const { return program_.program.types[eqn_->eqn.in[i]]; }
  const Type& out_type(size_t i = 0) const { return program_.program.types[eqn_->eqn.out[i]]; }
  const Extents& in_shape(size_t i) const { return program_.shapes[eqn_->eqn.in[i]]; }
  const Extents& out_shape(size_t i = 0) const { return program_.shapes[eqn_->eqn.out[i]]; }
  std::string full(size_t i) { return full_value(eqn_->eqn.in[i]); }
  // The shortest form.
  const std::string& in(size_t i) const { return values_[eqn_->eqn.in[i]].name; }
  Form form(size_t i) const { return values_[eqn_->eqn.in[i]].form; }
  // The form of an elementwise result.
  Form joint_form() const;
  void set(const std::string& name, Form form = Form::full, size_t i = 0) { set_value(eqn_->eqn.out[i], name, form); }

  // Throws Error: this equation has no ONNX form for the reason.
  [[noreturn]] void fail(const std::string& reason) const;

 private:
  struct Named {
    std::string name, full;
    Form form = Form::full;
  };
  void set_value(ValueId value, const std::string& name, Form form) {
    values_[value] = {name, form == Form::full ? name : "", form};
  }

  OnnxGraph& graph_;
  const SymbolicProgram& program_;
  std::vector<Named> values_;
  const SymbolicEqn* eqn_ = nullptr;
};

}  // namespace lockstep
