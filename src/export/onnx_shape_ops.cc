#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "export/onnx_ops.h"
#include "ops/elementwise.h"

namespace lockstep {
namespace {

using Form = OnnxEmitter::Form;

// The limit of an extent that is only known at run time, for slices in reverse order.
constexpr int64_t kBeforeFirst = INT64_MIN + 1;

std::vector<int64_t> all_axes(const Extents& shape) {
  std::vector<int64_t> out;
  for (int64_t d = 0; d < std::ssize(shape); ++d) out.push_back(d);
  return out;
}

// The shape operand of Reshape: one extent may follow from the others.
std::string reshape_target(OnnxEmitter& e) {
  Extents target = e.out_shape();
  const auto is_variable = [](const Extent& extent) { return !extent.is_constant(); };
  if (std::ranges::count_if(target, is_variable) == 1) *std::ranges::find_if(target, is_variable) = {.constant = -1};
  return e.graph().shape(target);
}

}  // namespace

void onnx_full(OnnxEmitter& e) {
  if (!is_floating(e.out_type().dtype)) static_cast<void>(e.integers("value"));  // fails if it depends on the sizes
  const Type type{e.out_type().dtype, {}};
  std::string bytes(static_cast<size_t>(type.bytes()), '\0');
  encode_element(*e.attrs().find("value"), type.dtype, bytes.data());
  e.set(e.graph().constant(type, std::move(bytes)), Form::scalar);
}

void onnx_iota(OnnxEmitter& e) {
  OnnxGraph& graph = e.graph();
  const auto dim = static_cast<size_t>(e.integer("dim"));
  const int64_t start = e.attrs().find("start") ? e.integer("start") : 0;
  const Extent extent = e.out_shape()[dim];
  const std::string limit = graph.add("Squeeze", {graph.shape({{.constant = extent.constant + start,
                                                                .batch = extent.batch,
                                                                .tokens = extent.tokens,
                                                                .both = extent.both}})});
  const std::string counts = graph.add("Range", {graph.integer(start), limit, graph.integer(1)});
  const std::string cast = graph.add("Cast", {counts}, {{"to", onnx_type(e.out_type().dtype)}});
  std::vector<int64_t> shape(e.out_shape().size(), 1);
  shape[dim] = -1;
  e.set(graph.add("Reshape", {cast, graph.integers(shape)}), Form::compact);
}

void onnx_alias(OnnxEmitter& e) { e.set(e.in(0), e.form(0)); }

void onnx_broadcast(OnnxEmitter& e) {
  if (e.form(0) == Form::scalar || e.in_shape(0).empty()) return e.set(e.in(0), Form::scalar);
  const std::vector<int64_t> dims = e.integers("dims");
  std::vector<int64_t> added;
  for (int64_t d = 0; d < std::ssize(e.out_shape()); ++d)
    if (std::ranges::find(dims, d) == dims.end()) added.push_back(d);
  if (added.empty()) return onnx_alias(e);
  e.set(e.graph().add("Unsqueeze", {e.in(0), e.graph().integers(added)}), Form::compact);
}

void onnx_reshape(OnnxEmitter& e) {
  if (e.form(0) == Form::scalar) return onnx_alias(e);
  const std::string operand = e.full(0);
  e.set(e.graph().add("Reshape", {operand, reshape_target(e)}));
}

void onnx_transpose(OnnxEmitter& e) {
  if (e.form(0) == Form::scalar) return onnx_alias(e);
  e.set(e.graph().add("Transpose", {e.in(0)}, {{"perm", e.integers("permutation")}}), e.form(0));
}

void onnx_slice(OnnxEmitter& e) {
  if (e.form(0) == Form::scalar) return onnx_alias(e);
  OnnxGraph& graph = e.graph();
  e.set(graph.add("Slice", {e.full(0), graph.shape(e.extents("starts")), graph.shape(e.extents("limits")),
                            graph.integers(all_axes(e.in_shape(0))), graph.shape(e.extents("strides"))}));
}

void onnx_reverse(OnnxEmitter& e) {
  if (e.form(0) == Form::scalar) return onnx_alias(e);
  OnnxGraph& graph = e.graph();
  const std::vector<int64_t> axes = e.integers("axes"), back(axes.size(), -1), to(axes.size(), kBeforeFirst);
  e.set(graph.add("Slice",
                  {e.full(0), graph.integers(back), graph.integers(to), graph.integers(axes), graph.integers(back)}));
}

void onnx_pad(OnnxEmitter& e) {
  std::vector<int64_t> pads = e.integers("lo");
  const std::vector<int64_t> hi = e.integers("hi"), interior = e.integers("interior");
  pads.insert(pads.end(), hi.begin(), hi.end());
  if (std::ranges::any_of(interior, [](int64_t each) { return each != 0; })) e.fail("it pads between elements");
  e.set(e.graph().add("Pad", {e.full(0), e.graph().integers(pads), e.full(1)}));
}

void onnx_concatenate(OnnxEmitter& e) {
  std::vector<std::string> operands;
  for (size_t i = 0; i < e.operands(); ++i) operands.push_back(e.full(i));
  e.set(e.graph().add("Concat", operands, {{"axis", e.integer("axis")}}));
}

void onnx_gather(OnnxEmitter& e) {
  OnnxGraph& graph = e.graph();
  if (e.integer("batch_dims") != 0) e.fail("its operands share batch dimensions");
  const int64_t axis = e.integer("axis");
  const Extent extent = e.in_shape(0)[static_cast<size_t>(axis)];
  if (!extent.is_constant()) e.fail("the number of rows depends on the inputs");
  // Indices outside of the array are clamped; ONNX's Gather does not allow them.
  std::string indices = e.full(1);
  if (e.in_type(1).dtype != i64) indices = graph.add("Cast", {indices}, {{"to", onnx_type(i64)}});
  indices = graph.add("Clip", {indices, graph.integer(0), graph.integer(extent.constant - 1)});
  e.set(graph.add("Gather", {e.full(0), indices}, {{"axis", axis}}));
}

void onnx_cast(OnnxEmitter& e) {
  if (e.in_type(0).dtype == e.out_type().dtype) return onnx_alias(e);
  e.set(e.graph().add("Cast", {e.in(0)}, {{"to", onnx_type(e.out_type().dtype)}}), e.form(0));
}

}  // namespace lockstep
