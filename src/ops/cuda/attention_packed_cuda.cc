// Attention on queries, keys and values that are slices of one array along the heads, the result of one product. The
// kernels read them where they are, and write the gradients into one array if these are concatenated along the heads.
#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "ops/cuda/attention_cuda.h"
#include "ops/cuda/combined.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

// A part of an array [b, t, heads, e] along the heads.
struct PackedHeads {
  int64_t first = 0;  // its first head
  int64_t lead = 0;   // elements from one token to the next; 0: it is a whole array

  int64_t offset(const Type& part) const { return lead > 0 ? first * part.shape[3] * size_of(part.dtype) : 0; }
};

// Kernels copy 16 bytes at once.
bool is_aligned(const Type& part) {
  return part.rank() == 4 && count(part.shape) > 0 && part.shape[3] * size_of(part.dtype) % 16 == 0;
}

// The heads that a slice takes, if it takes all else.
std::optional<PackedHeads> sliced_heads(const Eqn& eqn, const Type& from, const Type& part) {
  if (eqn.op != &slice_op || !is_aligned(part)) return {};
  for (const int64_t stride : eqn.attrs.ints("strides"))
    if (stride != 1) return {};
  for (const size_t d : {0, 1, 3})
    if (part.shape[d] != from.shape[d]) return {};
  return PackedHeads{eqn.attrs.ints("starts")[2], from.shape[2] * from.shape[3]};
}

// The slices that queries, keys and values are.
std::vector<size_t> slices_of(const ValueUses& uses, const Eqn& attention) {
  std::vector<size_t> out;
  for (size_t k = 0; k < 3; ++k) {
    const int from = uses.definition(attention.in[k]);
    if (from < 0) continue;
    const Eqn& eqn = uses.eqn(static_cast<size_t>(from));
    if (eqn.op == &slice_op && sliced_heads(eqn, uses.type(eqn.in[0]), uses.type(eqn.out[0])))
      out.push_back(static_cast<size_t>(from));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// The equation that concatenates the gradients, and nothing else, along the heads.
std::optional<size_t> concatenation_of(const ValueUses& uses, const Eqn& grad) {
  const std::optional<size_t> user = uses.only_user(grad.out[0]);
  if (!user) return {};
  const Eqn& eqn = uses.eqn(*user);
  if (eqn.op != &concatenate_op || eqn.attrs.integer("axis") != 2 || eqn.in.size() != 3) return {};
  for (const ValueId id : grad.out)
    if (uses.only_user(id) != user || !is_aligned(uses.type(id))) return {};
  return user;
}

CombinedEqns find_packed(const ValueUses& uses, size_t first) {
  const Eqn& eqn = uses.eqn(first);
  const bool gradient = eqn.op == &attention_grad_op;
  if (eqn.op != &attention_op && !gradient) return {};
  CombinedEqns out{{first}, slices_of(uses, eqn)};
  if (!gradient) return out;
  if (const auto concatenation = concatenation_of(uses, eqn)) out.eqns.push_back(*concatenation);
  return out;
}

// Where an operand or result of attention is.
struct PackedPlace {
  size_t index = 0;  // among the operands or results of the combined row
  int64_t offset = 0;
};

// The operands and results of attention as those of the combined row.
struct PackedAttention {
  const Eqn* eqn;
  bool gradient;
  AttentionLeads leads;
  std::vector<Type> in, out;
  std::vector<PackedPlace> operands, results;

  explicit PackedAttention(const Program& body) {
    const CombinedBody places(body);
    const Eqn* const forward = places.find(attention_op);
    gradient = forward == nullptr;
    eqn = gradient ? places.find(attention_grad_op) : forward;
    std::array<int64_t*, 3> of_in = {&leads.q, &leads.k, &leads.v}, of_out = {&leads.dq, &leads.dk, &leads.dv};
    for (const ValueId id : eqn->in) {
      in.push_back(body.types[id]);
      const PackedHeads heads = operand_heads(body, id);
      if (operands.size() < 3) *of_in[operands.size()] = heads.lead;
      const Eqn* const slice = slice_that_makes(body, id);
      operands.push_back({places.operand(slice ? slice->in[0] : id), heads.offset(in.back())});
    }
    const Eqn* const whole = places.find(concatenate_op);
    for (const ValueId id : eqn->out) {
      out.push_back(body.types[id]);
      if (!gradient || !whole) {
        results.push_back({*places.result(id), 0});
        continue;
      }
      const PackedHeads heads = result_heads(body, *whole, id);
      *of_out[results.size()] = heads.lead;
      results.push_back({*places.result(whole->out[0]), heads.offset(out.back())});
    }
  }

 private:
  static const Eqn* slice_that_makes(const Program& body, ValueId id) {
    for (const Eqn& each : body.eqns)
      if (each.op == &slice_op && each.out[0] == id) return &each;
    return nullptr;
  }
  static PackedHeads operand_heads(const Program& body, ValueId id) {
    const Eqn* const slice = slice_that_makes(body, id);
    return slice ? *sliced_heads(*slice, body.types[slice->in[0]], body.types[id]) : PackedHeads();
  }
  static PackedHeads result_heads(const Program& body, const Eqn& whole, ValueId id) {
    const Type& type = body.types[whole.out[0]];
    PackedHeads heads{0, type.shape[2] * type.shape[3]};
    for (const ValueId each : whole.in) {
      if (each == id) break;
      heads.first += body.types[each].shape[2];
    }
    return heads;
  }
};

Kernel packed_attention_cuda(const KernelSpec& spec) {
  const PackedAttention p(spec.attrs.program("body"));
  const KernelSpec own{
      .in = p.in, .out = p.out, .attrs = p.eqn->attrs, .pool = spec.pool, .alias = {}, .cuda = spec.cuda};
  Kernel kernel = p.gradient ? attention_grad_cuda(own, p.leads) : attention_cuda(own, p.leads);
  if (!kernel) return {};
  return [kernel = std::move(kernel), operands = p.operands, results = p.results,
          in = std::vector<const void*>(p.operands.size()),
          out = std::vector<void*>(p.results.size())](const void* const* from, void* const* to) mutable {
    for (size_t k = 0; k < in.size(); ++k)
      in[k] = static_cast<const std::byte*>(from[operands[k].index]) + operands[k].offset;
    for (size_t k = 0; k < out.size(); ++k) out[k] = static_cast<std::byte*>(to[results[k].index]) + results[k].offset;
    kernel(in.data(), out.data());
  };
}

}  // namespace

constinit const CombinedKernel combined_packed_attention = {
    .name = "packed_attention",
    .find = find_packed,
    .alias = [](const Program&, size_t, size_t) { return false; },
    .cuda = packed_attention_cuda,
};

}  // namespace lockstep
