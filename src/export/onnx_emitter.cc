#include "export/onnx_emitter.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "export/export_row.h"
#include "program/op.h"

namespace lockstep {

OnnxEmitter::OnnxEmitter(OnnxGraph& graph, const SymbolicProgram& program)
    : graph_(graph), program_(program), values_(program.program.types.size()) {}

void OnnxEmitter::fail(const std::string& reason) const {
  throw_error("export: the op {} {} cannot be written as ONNX: {}; use --format safetensors for the weights alone",
              eqn_->eqn.op->name, to_string(out_type()), reason);
}

void OnnxEmitter::emit(size_t index) {
  eqn_ = &program_.eqns[index];
  const ExportRow& row = export_row(*eqn_->eqn.op);
  if (row.onnx) return row.onnx(*this);
  if (!row.onnx_node) fail("it has no operator for it");
  std::vector<std::string> operands;
  for (size_t i = 0; i < this->operands(); ++i) operands.push_back(in(i));
  set(graph_.add(row.onnx_node, operands), joint_form());
}

std::string OnnxEmitter::full_value(ValueId value) {
  Named& named = values_[value];
  if (named.full.empty()) named.full = graph_.add("Expand", {named.name, graph_.shape(program_.shapes[value])});
  return named.full;
}

std::vector<int64_t> OnnxEmitter::integers(const char* attribute) const {
  std::vector<int64_t> out;
  for (const Extent& extent : extents(attribute)) {
    if (!extent.is_constant())
      fail(fmt::format("its attribute {} depends on the number of examples or tokens", attribute));
    out.push_back(extent.constant);
  }
  return out;
}

OnnxEmitter::Form OnnxEmitter::joint_form() const {
  Form out = Form::scalar;
  for (size_t i = 0; i < operands(); ++i) out = std::max(out, form(i));
  return out;
}

}  // namespace lockstep
