// Batching by the rule of an op. A factor may be sharded if its slices are computed independently of each other. So a
// batch can be such a factor:
//   - a new one. reduce_sum "ab->b" becomes "zab->zb", and its attribute axes = [0] becomes [1]
//   - for rows of fixed rank, part of the first one. max_pool "nhwc->npqc" of a batch of 3 of [2, 8, 8, 1] is max_pool
//     of [6, 8, 8, 1]: the same equation as on a shard, only larger
#include <fmt/format.h>

#include "base/check.h"
#include "ops/dims.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// The text of a rule, "ik,kj->ij", with a letter for the batch: "zik,kj->zij" if operand 0 is batched.
std::string with_batch_letter(const std::string& text, const Batch& b) {
  constexpr std::string_view kLetters = "zyxwvutsrqponmlkjihgfedcbaZYXWVUTSRQPONMLKJIHGFEDCBA";
  const size_t unused = kLetters.find_first_not_of(text);
  if (unused == std::string_view::npos) throw_error("{}: \"{}\" uses all 52 letters", b.op.name, text);
  const char letter = kLetters[unused];
  const Rule rule = parse_rule(text);
  std::string out;
  for (size_t i = 0; i < rule.in.size(); ++i) {
    if (i > 0) out += ',';
    if (b.batched[i]) out += letter;
    out += rule.in[i];
  }
  return fmt::format("{}->{}{}", out, letter, rule.out[0]);
}

Attr with_leading_dim(const Attr& attr, DimAttr kind, const Batch& b) {
  const auto ints = [&]() -> const Dims& { return std::get<Dims>(attr); };
  switch (kind) {
    case DimAttr::dims:
      if (std::holds_alternative<Dims>(attr)) return plus(ints(), 1);
      [[fallthrough]];
    case DimAttr::leading:
      return std::get<int64_t>(attr) + 1;
    case DimAttr::mapping:
      return prepend(0, plus(ints(), 1));
    case DimAttr::extents:
      return prepend(b.size, ints());
    case DimAttr::offsets:
      return prepend(0, ints());
    case DimAttr::strides:
      return prepend(1, ints());
    case DimAttr::rule:
      break;
  }
  return with_batch_letter(std::get<std::string>(attr), b);
}

bool starts_with(const std::string& term, char factor) { return !term.empty() && term[0] == factor; }

// The factor that comes first in all results, if a batch can be that factor or a part of it.
char batch_factor(const Batch& b, const Rule& rule) {
  LOCKSTEP_CHECK(!rule.out.empty() && !rule.out[0].empty(), "{}: its rule has no dimension for a batch", b.op.name);
  const char factor = rule.out[0][0];
  const auto lists = [&](const std::string& factors) { return factors.find(factor) != std::string::npos; };
  bool possible = !lists(rule.unsharded) && !lists(rule.position_dependent);
  for (size_t k = 0; k < rule.out.size(); ++k)
    possible &= starts_with(rule.out[k], factor) && step_of(rule.out_step, k, factor) == 1;
  for (size_t i = 0; i < rule.in.size(); ++i)
    possible &= (starts_with(rule.in[i], factor) || !b.batched[i]) && step_of(rule.in_step, i, factor) == 1;
  LOCKSTEP_CHECK(possible, "{}: its rule does not say how to batch these operands; the row needs a `batch` function",
                 b.op.name);
  return factor;
}

Batched batch_as_new_dim(const Batch& b) {
  Attrs attrs = b.attrs;
  for (const DimAttrs::Entry& entry : b.op.dim_attrs) {
    const Attr* attr = b.attrs.find(entry.name);
    LOCKSTEP_CHECK(attr, "{} without the attribute {}", b.op.name, entry.name);
    attrs.set(std::string(entry.name), with_leading_dim(*attr, entry.kind, b));
  }
  std::vector<Type> types;
  for (size_t i = 0; i < b.in.size(); ++i) {
    types.push_back(b.in[i].type());
    if (!b.batched[i]) types[i].shape.insert(types[i].shape.begin(), b.size);
  }
  const Rule rule = b.op.rule(types, attrs);
  const char factor = batch_factor(b, rule);
  Values in;
  for (size_t i = 0; i < b.in.size(); ++i) in.push_back(starts_with(rule.in[i], factor) ? with_batch(b, i) : b.in[i]);
  return b.builder.emit(b.op, in, std::move(attrs));
}

Batched batch_in_first_dim(const Batch& b) {
  std::vector<Type> types;
  for (size_t i = 0; i < b.in.size(); ++i) {
    types.push_back(b.in[i].type());
    if (b.batched[i]) types[i].shape.erase(types[i].shape.begin());
  }
  const Rule rule = b.op.rule(types, b.attrs);
  const char factor = batch_factor(b, rule);
  const std::vector<Type> results = infer_types(b.op, types, b.attrs);
  const int64_t extent = results[0].shape[0];
  const LocalEqn all = local_eqn(b.op, types, b.attrs, {{factor, {0, b.size * extent}}});
  Values in;
  for (size_t i = 0; i < b.in.size(); ++i)
    in.push_back(starts_with(rule.in[i], factor) ? reshape(with_batch(b, i), all.in[i].shape) : b.in[i]);
  Values out = b.builder.emit(b.op, in, all.attrs);
  for (size_t k = 0; k < out.size(); ++k) out[k] = reshape(out[k], prepend(b.size, results[k].shape));
  return out;
}

}  // namespace

Value with_batch(const Batch& b, size_t operand) {
  const Value x = b.in[operand];
  if (b.batched[operand]) return x;
  return broadcast(x, prepend(b.size, x.shape()), counting(1, x.rank() + 1));
}

Batched batch_by_rule(const Batch& b) {
  LOCKSTEP_CHECK(b.op.rule, "{}: has neither a rule nor a `batch` function; no program that is batched may have it",
                 b.op.name);
  return b.op.fixed_rank ? batch_in_first_dim(b) : batch_as_new_dim(b);
}

}  // namespace lockstep
