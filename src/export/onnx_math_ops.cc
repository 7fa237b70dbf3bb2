#include <fmt/format.h>

#include <algorithm>

#include "export/onnx_ops.h"
#include "ops/einsum.h"
#include "program/op.h"

namespace lockstep {
namespace {

using Form = OnnxEmitter::Form;

// Boolean operators; ONNX's bitwise ones are newer than the opset.
void emit_boolean(OnnxEmitter& e, const char* op) {
  if (e.out_type().dtype != boolean) e.fail("it is bitwise on integers");
  std::vector<std::string> operands;
  for (size_t i = 0; i < e.operands(); ++i) operands.push_back(e.in(i));
  e.set(e.graph().add(op, operands), e.joint_form());
}

void emit_reduction(OnnxEmitter& e, const char* op) {
  const std::string operand = e.full(0);
  e.set(e.graph().add(op, {operand}, {{"axes", e.integers("axes")}, {"keepdims", int64_t{0}}}));
}

void emit_position(OnnxEmitter& e, const char* op) {
  OnnxGraph& graph = e.graph();
  const std::string found = graph.add(op, {e.full(0)}, {{"axis", e.integer("axis")}, {"keepdims", int64_t{0}}});
  e.set(graph.add("Cast", {found}, {{"to", onnx_type(e.out_type().dtype)}}));
}

// The terms of a contraction as a matrix product: leading batch letters in all terms, rows, columns.
struct MatrixForm {
  bool is_product = false;
  bool transposes_b = false;
};
MatrixForm matrix_form(const std::string& a, const std::string& b, const std::string& out) {
  if (a.size() < 2 || b.size() < 2 || out.size() != a.size()) return {};
  const std::string rows = a.substr(0, a.size() - 1), batch = rows.substr(0, b.size() - 2);
  const char inner = a.back(), column = out.back();
  if (b.size() > a.size() || out.substr(0, out.size() - 1) != rows || rows.find(column) != rows.npos) return {};
  // With batch letters, both operands have all of them.
  if (b.size() > 2 && b.size() != a.size()) return {};
  if (b == batch + inner + column) return {true, false};
  if (b == batch + column + inner) return {true, true};
  return {};
}

}  // namespace

void onnx_not(OnnxEmitter& e) { emit_boolean(e, "Not"); }
void onnx_and(OnnxEmitter& e) { emit_boolean(e, "And"); }
void onnx_or(OnnxEmitter& e) { emit_boolean(e, "Or"); }
void onnx_xor(OnnxEmitter& e) { emit_boolean(e, "Xor"); }

void onnx_ne(OnnxEmitter& e) {
  e.set(e.graph().add("Not", {e.graph().add("Equal", {e.in(0), e.in(1)})}), e.joint_form());
}

void onnx_is_finite(OnnxEmitter& e) {
  OnnxGraph& graph = e.graph();
  const std::string bad = graph.add("Or", {graph.add("IsNaN", {e.in(0)}), graph.add("IsInf", {e.in(0)})});
  e.set(graph.add("Not", {bad}), e.form(0));
}

void onnx_rsqrt(OnnxEmitter& e) { e.set(e.graph().add("Reciprocal", {e.graph().add("Sqrt", {e.in(0)})}), e.form(0)); }

void onnx_rem(OnnxEmitter& e) {
  e.set(e.graph().add("Mod", {e.in(0), e.in(1)}, {{"fmod", int64_t{1}}}), e.joint_form());
}

void onnx_reduce_sum(OnnxEmitter& e) {
  const std::string operand = e.full(0);
  e.set(e.graph().add("ReduceSum", {operand, e.graph().integers(e.integers("axes"))}, {{"keepdims", int64_t{0}}}));
}
void onnx_reduce_prod(OnnxEmitter& e) { emit_reduction(e, "ReduceProd"); }
void onnx_reduce_max(OnnxEmitter& e) { emit_reduction(e, "ReduceMax"); }
void onnx_reduce_min(OnnxEmitter& e) { emit_reduction(e, "ReduceMin"); }
void onnx_argmax(OnnxEmitter& e) { emit_position(e, "ArgMax"); }
void onnx_argmin(OnnxEmitter& e) { emit_position(e, "ArgMin"); }

void onnx_cumsum(OnnxEmitter& e) {
  const int64_t reverse = e.attrs().get_or<bool>("reverse", false) ? 1 : 0;
  e.set(e.graph().add("CumSum", {e.full(0), e.graph().integer(e.integer("axis"))}, {{"reverse", reverse}}));
}

void onnx_einsum(OnnxEmitter& e) {
  OnnxGraph& graph = e.graph();
  const std::string spec = e.attrs().get<std::string>("spec");
  const Rule rule = parse_rule(spec);
  const std::string &a = rule.in[0], &b = rule.in[1];
  std::string left = e.full(0), right = e.full(1);
  const MatrixForm form = matrix_form(a, b, rule.out[0]);
  if (!form.is_product) return e.set(graph.add("Einsum", {left, right}, {{"equation", spec}}));
  if (form.transposes_b) {
    std::vector<int64_t> order;
    for (int64_t d = 0; d < std::ssize(b); ++d) order.push_back(d);
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    right = graph.add("Transpose", {right}, {{"perm", order}});
  }
  e.set(graph.add("MatMul", {left, right}));
}

void onnx_layer_norm(OnnxEmitter& e) {
  if (e.integer("batch_dims") != 0) e.fail("every batch element has its own scale");
  const std::vector<std::string> results =
      e.graph().add("LayerNormalization", {e.full(0), e.full(1), e.full(2)},
                    {{"axis", int64_t{-1}}, {"epsilon", static_cast<float>(e.attrs().get<double>("epsilon"))}}, 1);
  e.set(results[0]);
}

void onnx_top_k(OnnxEmitter& e) {
  OnnxGraph& graph = e.graph();
  const std::vector<std::string> results =
      graph.add("TopK", {e.full(0), graph.integers({e.integer("k")})}, {{"axis", int64_t{-1}}}, 2);
  e.set(results[0]);
  e.set(graph.add("Cast", {results[1]}, {{"to", onnx_type(e.out_type(1).dtype)}}), Form::full, 1);
}

}  // namespace lockstep
