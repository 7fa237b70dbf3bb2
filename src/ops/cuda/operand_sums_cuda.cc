// A product and the sums of one of its operands over the dimensions that it contracts: the gradients of a layer's weights
// and bias. cuBLASLt adds up the operand as it reads it.
#include <algorithm>
#include <memory>
#include <optional>

#include "lane/cuda/gemm_cuda.h"
#include "ops/cuda/combined.h"
#include "ops/cuda/cost_model.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/product_cuda.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

// The dimensions of operand k that the product contracts, if all others are dimensions of this operand only.
std::optional<std::vector<int64_t>> contracted_dims(const Eqn& product, size_t k) {
  const Rule rule = parse_rule(product.attrs.get<std::string>("spec"));
  const std::string &own = rule.in[k], &other = rule.in[1 - k];
  std::vector<int64_t> out;
  for (size_t d = 0; d < own.size(); ++d) {
    const bool in_other = other.find(own[d]) != other.npos, in_result = rule.out[0].find(own[d]) != std::string::npos;
    if (in_other == in_result) return {};
    if (in_other) out.push_back(static_cast<int64_t>(d));
  }
  return out;
}

CombinedEqns find_operand_sums(const ValueUses& uses, size_t first) {
  const Eqn& product = uses.eqn(first);
  if (product.op != &einsum_fused_op) return {};
  for (size_t k = 0; k < 2; ++k) {
    const Type& type = uses.type(product.in[k]);
    if (!CudaGemm::supports(type.dtype) || type.bytes() < cost_model::kFewestBytesForColumnSums) continue;
    const auto dims = contracted_dims(product, k);
    if (!dims) continue;
    for (const size_t user : uses.users(product.in[k]))
      if (uses.eqn(user).op == &reduce_sum_op && uses.eqn(user).attrs.ints("axes") == *dims) {
        CombinedEqns out{{first, user}};
        std::sort(out.eqns.begin(), out.eqns.end());
        return out;
      }
  }
  return {};
}

bool operand_sums_alias(const Program& body, size_t in, size_t out) {
  const CombinedBody places(body);
  const Eqn& product = *places.find(einsum_fused_op);
  std::vector<Type> in_types, out_types;
  for (const ValueId id : product.in) in_types.push_back(body.types[id]);
  for (const ValueId id : product.out) out_types.push_back(body.types[id]);
  for (size_t k = 0; k < product.in.size(); ++k)
    for (size_t r = 0; r < product.out.size(); ++r)
      if (places.operand(product.in[k]) == in && places.result(product.out[r]) == out)
        return product.op->alias(in_types, out_types, product.attrs, k, r);
  return false;
}

Kernel operand_sums_cuda(const KernelSpec& spec) {
  const Program& all = spec.attrs.program("body");
  const CombinedBody places(all);
  const Eqn &product = *places.find(einsum_fused_op), &sum = *places.find(reduce_sum_op);
  const Program& body = product.attrs.program("body");
  std::vector<Type> in_types, out_types;
  std::vector<size_t> operands, results;
  for (const ValueId id : product.in) {
    in_types.push_back(all.types[id]);
    operands.push_back(places.operand(id));
  }
  std::vector<int> alias;
  for (const ValueId id : product.out) {
    out_types.push_back(all.types[id]);
    results.push_back(*places.result(id));
    const int operand = results.back() < spec.alias.size() ? spec.alias[results.back()] : -1;
    const auto at = std::find(operands.begin(), operands.end(), static_cast<size_t>(operand));
    alias.push_back(operand < 0 ? -1 : static_cast<int>(at - operands.begin()));
  }
  const KernelSpec own{
      .in = in_types, .out = out_types, .attrs = product.attrs, .pool = spec.pool, .alias = alias, .cuda = spec.cuda};
  const size_t summed = product.in[0] == sum.in[0] ? 0 : 1;
  const auto multiply = product_with_sums_cuda(own, body.types[body.inputs[0]], summed);
  if (!multiply) return {};
  struct State {
    void* sums = nullptr;
    Kernel kernel = {};
    std::vector<const void*> in = {};
    std::vector<void*> out = {};
  };
  auto state = std::make_shared<State>();
  state->kernel = then_body(
      [multiply, s = state.get()](const void* const* in, void* out) { multiply(in, out, s->sums); }, 2, body, own);
  state->in.resize(operands.size());
  state->out.resize(results.size());
  return [=, sums = *places.result(sum.out[0])](const void* const* in, void* const* out) {
    State& s = *state;
    s.sums = out[sums];
    for (size_t k = 0; k < operands.size(); ++k) s.in[k] = in[operands[k]];
    for (size_t r = 0; r < results.size(); ++r) s.out[r] = out[results[r]];
    s.kernel(s.in.data(), s.out.data());
  };
}

}  // namespace

constinit const CombinedKernel combined_operand_sums = {
    .name = "product_and_operand_sums",
    .find = find_operand_sums,
    .alias = operand_sums_alias,
    .cuda = operand_sums_cuda,
};

}  // namespace lockstep
