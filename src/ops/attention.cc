// The rows attention and attention_grad. Letters as in AttentionSizes.
#include "ops/attention.h"

#include <cmath>
#include <limits>

#include "ops/attention_cpu.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"
#include "ops/window_attrs.h"

namespace lockstep {
namespace {

constexpr size_t kAttentionOperands = 3, kGradOperands = 6;

std::string_view attention_name(bool gradient) { return gradient ? attention_grad_op.name : attention_op.name; }

// Sets the numbers of the extras in `list`.
void place_extras(AttentionAttrs& a, std::string_view op, const std::string& list, bool gradient) {
  struct Extra {
    std::string_view name;
    std::initializer_list<int*> numbers;
  };
  const Extra known[] = {{"dlse", {&a.dlse}},
                         {"offset", {&a.offset}},
                         {"lengths", {&a.lengths}},
                         {"segments", {&a.query_segments, &a.key_segments}},
                         {"dropout_key", {&a.dropout_key}}};
  a.operands = gradient ? kGradOperands : kAttentionOperands;
  std::string_view rest = list;
  for (const Extra& extra : known) {
    if ((&extra == known && !gradient) || !rest.starts_with(extra.name)) continue;
    const std::string_view after = rest.substr(extra.name.size());
    if (!after.empty() && after[0] != ',') continue;
    rest = after.empty() ? after : after.substr(1);
    for (int* const number : extra.numbers) *number = static_cast<int>(a.operands++);
  }
  if (!rest.empty() || list.ends_with(','))
    throw_error("{}: the extras are \"{}\"; give some of {}offset, lengths, segments, dropout_key, in this order", op,
                list, gradient ? "dlse, " : "");
}

void expect_finite(std::string_view op, std::string_view what, double value, bool fits, std::string_view wanted) {
  if (!fits || !std::isfinite(value)) throw_error("{}: {} is {}; it must be {}", op, what, value, wanted);
}

Attrs to_attrs(const AttentionAttrs& a, std::string extras) {
  return {{"causal", a.causal},   {"window", a.window},        {"scale", a.scale},           {"softcap", a.softcap},
          {"dropout", a.dropout}, {"first", to_ints(a.first)}, {"extras", std::move(extras)}};
}

// ---- types

void expect_heads(std::string_view op, Types in) {
  const auto shapes = [&] { return to_string(in[0]) + ", " + to_string(in[1]) + ", " + to_string(in[2]); };
  if (in[0].rank() != 4 || in[1].rank() != 4 || in[2].rank() != 4)
    throw_error("{}: q, k, v are {}; each must be [examples, tokens, heads, features]", op, shapes());
  const Shape &q = in[0].shape, &k = in[1].shape, &v = in[2].shape;
  if (k[0] != q[0] || v[0] != q[0] || v[1] != k[1] || v[2] != k[2] || k[3] != q[3])
    throw_error(
        "{}: q, k, v are {}; they must have the same examples, k and v the same tokens and heads, q and k the same "
        "features",
        op, shapes());
  if (k[2] == 0 ? q[2] != 0 : q[2] % k[2] != 0)
    throw_error("{}: {} heads of queries share {} heads of keys; the second must divide the first", op, q[2], k[2]);
  if (!is_floating(in[0].dtype) || in[1].dtype != in[0].dtype || in[2].dtype != in[0].dtype)
    throw_error("{}: q, k, v are {}; they must have one floating type", op, shapes());
}

void expect_operand(std::string_view op, std::string_view what, Types in, int number, const Type& wanted) {
  if (number < 0) return;
  const Type& got = in[static_cast<size_t>(number)];
  if (got != wanted) throw_error("{}: the {} is {}; it must be {}", op, what, to_string(got), to_string(wanted));
}

Type lse_type(Types in) {
  const AttentionSizes n(in);
  return {in[0].dtype == DType::f64 ? DType::f64 : DType::f32, {n.b, n.h, n.t}};
}
Type y_type(Types in) {
  const AttentionSizes n(in);
  return {in[0].dtype, {n.b, n.t, n.h, n.f}};
}

AttentionAttrs checked_attention(Types in, const Attrs& attrs, bool gradient) {
  const std::string_view op = attention_name(gradient);
  const AttentionAttrs a = attention_attrs(attrs, gradient);
  expect_operands(op, in, a.operands);
  expect_heads(op, in);
  const AttentionSizes n(in);
  if (n.t > std::numeric_limits<int32_t>::max() || n.s > std::numeric_limits<int32_t>::max())
    throw_error("{}: {} queries and {} keys; positions must fit 31 bits", op, n.t, n.s);
  expect_operand(op, "cotangent of lse", in, a.dlse, lse_type(in));
  expect_operand(op, "offset", in, a.offset, {DType::i32, {}});
  expect_operand(op, "array of lengths", in, a.lengths, {DType::i32, {n.b}});
  expect_operand(op, "array of segments of queries", in, a.query_segments, {DType::i32, {n.b, n.t}});
  expect_operand(op, "array of segments of keys", in, a.key_segments, {DType::i32, {n.b, n.s}});
  expect_operand(op, "dropout key", in, a.dropout_key, {DType::u32, {2}});
  return a;
}

std::vector<Type> attention_type(Types in, const Attrs& attrs) {
  checked_attention(in, attrs, false);
  return {y_type(in), lse_type(in)};
}

std::vector<Type> attention_grad_type(Types in, const Attrs& attrs) {
  checked_attention(in, attrs, true);
  expect_operand("attention_grad", "result y", in, 3, y_type(in));
  expect_operand("attention_grad", "result lse", in, 4, lse_type(in));
  expect_operand("attention_grad", "cotangent of y", in, 5, y_type(in));
  return {in[0], in[1], in[2]};
}

// ---- sharding: a step along the heads of keys is h / g heads of queries. Keys and features are not sharded.

Rule with_extras(Rule rule, Types in, const AttentionAttrs& a) {
  rule.in.resize(a.operands);
  const auto set = [&](int number, const char* term) {
    if (number >= 0) rule.in[static_cast<size_t>(number)] = term;
  };
  set(a.dlse, "bgt");
  set(a.lengths, "b");
  set(a.query_segments, "bt");
  set(a.key_segments, "bs");
  set(a.dropout_key, "w");
  rule.unsharded = "sefw";
  rule.position_dependent = a.dropout > 0 ? "bgt" : a.sees_by_position() ? "t" : "";
  const AttentionSizes n(in);
  if (n.sharing() == 1) return rule;
  const auto steps = [&](const std::vector<std::string>& terms) {
    Steps out(terms.size());
    // The heads of queries come with t, those of keys with s.
    for (size_t i = 0; i < terms.size(); ++i)
      if (terms[i].find('g') != std::string::npos && terms[i].find('t') != std::string::npos) out[i]['g'] = n.sharing();
    return out;
  };
  rule.in_step = steps(rule.in);
  rule.out_step = steps(rule.out);
  return rule;
}

Rule attention_rule(Types in, const Attrs& attrs) {
  return with_extras(parse_rule("btge,bsge,bsgf->btgf,bgt"), in, attention_attrs(attrs, false));
}
// If t is sharded, dk and dv are partial.
Rule attention_grad_rule(Types in, const Attrs& attrs) {
  return with_extras(parse_rule("btge,bsge,bsgf,btgf,bgt,btgf->btge,bsge,bsgf"), in, attention_attrs(attrs, true));
}

// Where the shard begins, as far as results depend on it.
Attrs attention_local(const LocalEqnContext& v) {
  std::array<int64_t, 3> first = fixed_ints<3>("attention", v.attrs, "first", 0);
  const AttentionSizes n(v.in);
  const int64_t steps[] = {1, n.sharing(), 1};
  for (size_t d = 0; d < 3; ++d) {
    const char factor = "bgt"[d];
    const auto at = v.ranges.find(factor);
    if (at != v.ranges.end() && v.rule.position_dependent.find(factor) != std::string::npos)
      first[d] += at->second.begin * steps[d];
  }
  Attrs attrs = v.attrs;
  attrs.set("first", to_ints(first));
  return attrs;
}

// ---- gradients

Grads attention_vjp(const Vjp& v) {
  const AttentionAttrs a = attention_attrs(v.attrs, false);
  Values in{v.in[0], v.in[1], v.in[2], v.out[0], v.out[1], v.cts[0] ? v.cts[0] : zeros_like(v.out[0])};
  Attrs attrs = v.attrs;
  if (v.cts[1]) {
    in.push_back(v.cts[1]);
    const auto& extras = attrs.get<std::string>("extras");
    attrs.set("extras", extras.empty() ? "dlse" : "dlse," + extras);
  }
  in.insert(in.end(), v.in.begin() + kAttentionOperands, v.in.end());
  Grads grads = in[0].builder().emit(attention_grad_op, in, std::move(attrs));
  grads.resize(a.operands);
  return grads;
}

std::vector<Type> types_of(std::span<const Value> values) {
  std::vector<Type> types;
  for (const Value& value : values) types.push_back(value.type());
  return types;
}

Grads attention_grad_vjp(const Vjp& v) {
  const Program program = attention_grad_program(types_of(v.in), attention_attrs(v.attrs, true));
  Values args(v.in.begin(), v.in.end());
  for (size_t k = 0; k < v.out.size(); ++k) args.push_back(v.cts[k] ? v.cts[k] : zeros_like(v.out[k]));
  const Values results = args[0].builder().inline_program(v.passes.joint(program, v.wanted), args);
  Grads grads(v.in.size());
  size_t next = v.out.size();
  for (size_t i = 0; i < grads.size(); ++i)
    if (v.wanted[i]) grads[i] = results[next++];
  return grads;
}

// ---- batching: the batch is merged into the examples, and operands that all examples share are copied. The offset and
// the dropout key belong to all examples; with one of each, the row is replaced by its program.
template <bool kGradient>
Batched attention_batch(const Batch& b) {
  const AttentionAttrs a = attention_attrs(b.attrs, kGradient);
  const auto shared = [&](size_t i) { return static_cast<int>(i) == a.offset || static_cast<int>(i) == a.dropout_key; };
  std::vector<Type> types = types_of(b.in);
  bool program = false;
  for (size_t i = 0; i < types.size(); ++i) {
    if (!b.batched[i]) continue;
    types[i].shape.erase(types[i].shape.begin());
    program |= shared(i);
  }
  const std::vector<Type> results = infer_types(b.op, types, b.attrs);
  if (program) {
    const Program one = kGradient ? attention_grad_program(types, a) : attention_program(types, a);
    return b.builder.inline_program(
        b.passes.batch(one, b.batched, b.size, std::vector<bool>(results.size(), true), b.axis).program, b.in);
  }
  Values in;
  for (size_t i = 0; i < types.size(); ++i) {
    if (shared(i)) {
      in.push_back(b.in[i]);
      continue;
    }
    Shape merged = types[i].shape;
    merged[0] *= b.size;
    in.push_back(reshape(with_batch(b, i), merged));
  }
  Values out = b.builder.emit(b.op, in, b.attrs);
  for (size_t k = 0; k < out.size(); ++k) out[k] = reshape(out[k], prepend(b.size, results[k].shape));
  return out;
}

}  // namespace

uint32_t AttentionAttrs::dropout_threshold() const { return static_cast<uint32_t>(std::lround(dropout * 65536)); }

AttentionAttrs attention_attrs(const Attrs& attrs, bool gradient) {
  const std::string_view op = attention_name(gradient);
  AttentionAttrs a{.causal = attrs.get<bool>("causal"),
                   .window = attrs.integer("window"),
                   .scale = attrs.get<double>("scale"),
                   .softcap = attrs.get<double>("softcap"),
                   .dropout = attrs.get<double>("dropout"),
                   .first = fixed_ints<3>(op, attrs, "first", 0)};
  if (a.window < 0 || a.window > std::numeric_limits<int32_t>::max())
    throw_error("{}: the window is {}; it must be a positive number of at most 31 bits, or 0 for none", op, a.window);
  expect_finite(op, "the scale", a.scale, true, "a finite number");
  expect_finite(op, "the softcap", a.softcap, a.softcap >= 0, "a positive number, or 0 for none");
  expect_finite(op, "the dropout", a.dropout, a.dropout >= 0 && a.dropout < 1, "at least 0 and less than 1");
  place_extras(a, op, attrs.get<std::string>("extras"), gradient);
  if ((a.dropout > 0) != (a.dropout_key >= 0))
    throw_error("{}: the dropout is {} {} a dropout_key; a dropout above 0 takes a key, and no other does", op,
                a.dropout, a.dropout_key >= 0 ? "with" : "without");
  return a;
}

namespace {

// The products of queries with keys and of weights with values, without regard to masks; backwards twice as many.
template <bool kBackward>
double attention_multiply_adds(Types in, Types, const Attrs&, double (*)(const Program&)) {
  const Type &q = in[0], &k = in[1], &v = in[2];
  const double scores = static_cast<double>(q.shape[0] * q.shape[1] * q.shape[2]) * static_cast<double>(k.shape[1]);
  return scores * static_cast<double>(q.shape[3] + v.shape[3]) * (kBackward ? 2 : 1);
}

}  // namespace

constinit const Op attention_op = {.name = "attention",
                                   .rule = attention_rule,
                                   .type = attention_type,
                                   .vjp = attention_vjp,
                                   .batch = attention_batch<false>,
                                   .local = attention_local,
                                   .recognize = recognize_attention,
                                   .multiply_adds = attention_multiply_adds<false>,
                                   .cpu = attention_cpu,
                                   .cuda = LOCKSTEP_CUDA(attention_cuda)};
constinit const Op attention_grad_op = {.name = "attention_grad",
                                        .rule = attention_grad_rule,
                                        .pending = PendingReduction::sum,
                                        .type = attention_grad_type,
                                        .vjp = attention_grad_vjp,
                                        .batch = attention_batch<true>,
                                        .local = attention_local,
                                        .multiply_adds = attention_multiply_adds<true>,
                                        .cpu = attention_grad_cpu,
                                        .cuda = LOCKSTEP_CUDA(attention_grad_cuda)};

Values attention(Value q, Value k, Value v, const AttentionAttrs& attrs, const AttentionExtras& extras) {
  Values in{q, k, v};
  std::string list;
  const auto add = [&](const char* name, std::initializer_list<Value> values) {
    if (!*values.begin()) return;
    list += (list.empty() ? "" : ",") + std::string(name);
    in.insert(in.end(), values);
  };
  add("offset", {extras.offset});
  add("lengths", {extras.lengths});
  add("segments", {extras.query_segments, extras.key_segments});
  add("dropout_key", {extras.dropout_key});
  return q.builder().emit(attention_op, in, to_attrs(attrs, list));
}

}  // namespace lockstep
