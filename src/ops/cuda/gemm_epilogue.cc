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

// A program that is an epilogue of cuBLASLt: its inputs are the product and those of the epilogue.
struct EpilogueForm {
  GemmEpilogue epilogue;
  Program program;
  bool has_mask = false;  // the second output is relu_mask()
};

struct Activated {
  GemmEpilogue::Activation activation;
  Value (*of)(Value);
  Value (*mask)(Value) = nullptr;  // a second result
  bool keeps_argument = false;     // likewise
};
constexpr Activated kActivations[] = {
    {GemmEpilogue::none, [](Value x) { return x; }},
    {GemmEpilogue::relu, relu},
    {GemmEpilogue::relu, relu, relu_mask},
    {GemmEpilogue::relu, [](Value x) { return maximum(x, zeros_like(x)); }},
    {GemmEpilogue::gelu, gelu},
    {GemmEpilogue::gelu, gelu, nullptr, true},
};

// How the inputs of a body are used. 0: there is none.
struct EpilogueInputs {
  size_t bias = 0, matrix = 0;
  std::vector<int64_t> bias_dims = {};
};
std::optional<EpilogueInputs> inputs_of(const Program& body, int64_t columns) {
  EpilogueInputs out;
  const Type& product = body.types[body.inputs[0]];
  for (size_t i = 1; i < body.inputs.size(); ++i) {
    const Type& type = body.types[body.inputs[i]];
    if (type == product && out.matrix == 0) {
      out.matrix = i;
      continue;
    }
    const auto dims = bias_dims(product, type, columns);
    if (!dims || out.bias != 0) return {};
    out.bias = i;
    out.bias_dims = *dims;
  }
  return out;
}

// The forms with these inputs.
std::vector<EpilogueForm> forms_with(const Program& body, const EpilogueInputs& inputs) {
  std::vector<EpilogueForm> out;
  const auto add = [&](const GemmEpilogue& epilogue, bool has_mask, const auto& results) {
    Builder b;
    Values in;
    for (const ValueId id : body.inputs) in.push_back(b.input(body.types[id]));
    EpilogueForm form{epilogue, {}, has_mask};
    form.program = b.take(results(in));
    out.push_back(std::move(form));
  };
  const auto with_bias = [&](const Values& in, bool first) {
    if (inputs.bias == 0) return in[0];
    const Value bias = broadcast(in[inputs.bias], in[0].shape(), inputs.bias_dims);
    return first ? bias + in[0] : in[0] + bias;
  };
  for (const bool bias_first : {false, true}) {
    if (inputs.bias == 0 && bias_first) break;
    if (inputs.matrix != 0) {
      for (const bool first : {false, true})
        add({.bias = inputs.bias != 0, .residual = true}, false, [&](const Values& in) {
          const Value x = with_bias(in, bias_first), residual = in[inputs.matrix];
          return Values{first ? residual + x : x + residual};
        });
      continue;
    }
    for (const Activated& each : kActivations) {
      if (inputs.bias == 0 && each.activation == GemmEpilogue::none) continue;
      add({inputs.bias != 0, each.activation, false, each.keeps_argument}, each.mask != nullptr, [&](const Values& in) {
        const Value x = with_bias(in, bias_first);
        if (each.keeps_argument) return Values{each.of(x), x};
        return each.mask ? Values{each.of(x), each.mask(x)} : Values{each.of(x)};
      });
    }
  }
  if (inputs.matrix != 0 && inputs.bias == 0)
    for (const bool first : {false, true})
      add({.activation = GemmEpilogue::gelu_slope}, false, [&](const Values& in) {
        const Value slope = gelu_slope(in[1]);
        return Values{first ? slope * in[0] : in[0] * slope};
      });
  return out;
}

}  // namespace

Value relu_mask(Value x) { return le(x, zeros_like(x)); }

std::optional<MatchedEpilogue> epilogue_of(const Program& body, int64_t columns) {
  if (body.outputs.size() > 2 || body.inputs.size() > 3) return {};
  const std::optional<EpilogueInputs> inputs = inputs_of(body, columns);
  if (!inputs) return {};
  for (const EpilogueForm& form : forms_with(body, *inputs)) {
    const Program& wanted = form.program;
    if (body.outputs.size() != wanted.outputs.size()) continue;
    for (size_t result = 0; result < body.outputs.size(); ++result) {
      if (!is_same(body, body.outputs[result], wanted, wanted.outputs[0])) continue;
      const size_t other = 1 - result;
      if (wanted.outputs.size() == 2 && !is_same(body, body.outputs[other], wanted, wanted.outputs[1])) continue;
      MatchedEpilogue out{form.epilogue, result};
      if (form.epilogue.bias) out.bias = inputs->bias;
      if (form.epilogue.residual) out.residual = inputs->matrix;
      if (form.epilogue.activation == GemmEpilogue::gelu_slope) out.argument = inputs->matrix;
      if (form.epilogue.keeps_argument) out.kept_argument = other;
      if (form.has_mask) out.relu_mask = other;
      return out;
    }
  }
  return {};
}

}  // namespace lockstep
