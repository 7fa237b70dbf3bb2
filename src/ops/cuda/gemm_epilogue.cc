#include "ops/cuda/gemm_epilogue.h"

#include <algorithm>

#include "ops/activations.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

const Eqn* maker(const Program& p, ValueId id) {
  for (const Eqn& eqn : p.eqns)
    if (std::find(eqn.out.begin(), eqn.out.end(), id) != eqn.out.end()) return &eqn;
  return nullptr;
}

// Whether x in p and y in q are computed from the same inputs by the same equations.
bool is_same(const Program& p, ValueId x, const Program& q, ValueId y) {
  if (p.types[x] != q.types[y]) return false;
  const Eqn *left = maker(p, x), *right = maker(q, y);
  if (!left || !right) {
    const auto number = [](const Program& of, ValueId id) {
      return std::find(of.inputs.begin(), of.inputs.end(), id) - of.inputs.begin();
    };
    return !left && !right && number(p, x) == number(q, y);
  }
  if (left->op != right->op || left->attrs != right->attrs || left->in.size() != right->in.size()) return false;
  for (size_t i = 0; i < left->in.size(); ++i)
    if (!is_same(p, left->in[i], q, right->in[i])) return false;
  return true;
}

// The dimensions of the product that a bias spans: the last ones, which are the columns.
std::optional<std::vector<int64_t>> bias_dims(const Type& product, const Type& bias, int64_t columns) {
  const size_t rank = product.shape.size(), own = bias.shape.size();
  if (own >= rank || bias.dtype != product.dtype || count(bias.shape) != columns) return {};
  if (!std::equal(bias.shape.begin(), bias.shape.end(), product.shape.end() - static_cast<std::ptrdiff_t>(own)))
    return {};
  std::vector<int64_t> dims;
  for (size_t d = rank - own; d < rank; ++d) dims.push_back(static_cast<int64_t>(d));
  return dims;
}

}  // namespace

Value relu_mask(Value x) { return le(x, zeros_like(x)); }

std::optional<MatchedEpilogue> epilogue_of(const Program& body, int64_t columns) {
  if (body.outputs.size() > 2 || body.inputs.size() > 2) return {};
  const Type& product = body.types[body.inputs[0]];
  const bool has_bias = body.inputs.size() == 2;
  std::optional<std::vector<int64_t>> dims;
  if (has_bias) {
    dims = bias_dims(product, body.types[body.inputs[1]], columns);
    if (!dims) return {};
  }
  struct Form {
    GemmEpilogue::Activation activation;
    Value (*of)(Value);
    Value (*mask)(Value) = nullptr;  // the other result
  };
  constexpr Form kForms[] = {
      {GemmEpilogue::none, [](Value x) { return x; }},
      {GemmEpilogue::relu, relu},
      {GemmEpilogue::relu, relu, relu_mask},
      {GemmEpilogue::relu, [](Value x) { return maximum(x, zeros_like(x)); }},
      {GemmEpilogue::gelu, gelu},
  };
  for (const auto& [activation, of, mask] : kForms)
    for (const bool bias_first : {false, true}) {
      if (!has_bias && (bias_first || activation == GemmEpilogue::none)) continue;
      if (body.outputs.size() != (mask ? 2 : 1)) continue;
      Builder b;
      Value x = b.input(product);
      if (has_bias) {
        const Value bias = broadcast(b.input(body.types[body.inputs[1]]), product.shape, *dims);
        x = bias_first ? bias + x : x + bias;
      }
      const Program wanted = b.take(mask ? Values{of(x), mask(x)} : Values{of(x)});
      for (size_t result = 0; result < body.outputs.size(); ++result) {
        if (!is_same(body, body.outputs[result], wanted, wanted.outputs[0])) continue;
        if (!mask) return MatchedEpilogue{{has_bias, activation}};
        if (is_same(body, body.outputs[1 - result], wanted, wanted.outputs[1]))
          return MatchedEpilogue{{has_bias, activation}, result, 1 - result};
      }
    }
  return {};
}

}  // namespace lockstep
