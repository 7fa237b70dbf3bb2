#include "ops/einsum.h"

#include <map>

#include "base/check.h"
#include "ops/complex.h"
#include "ops/cuda/kernels.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

Rule einsum_rule(Types, const Attrs& attrs) { return parse_rule(attrs.get<std::string>("spec")); }

// The type whose products an integer type is computed with: the low bits are the same.
DType product_type(DType t) {
  if (t == DType::u64) return DType::i64;
  return is_integer(t) && t != DType::u8 && size_of(t) < 4 ? DType::i32 : t;
}

bool has_index(const std::string& s, char c) { return s.find(c) != std::string::npos; }

std::vector<Type> einsum_type(Types in, const Attrs& attrs) {
  const std::string& spec = attrs.get<std::string>("spec");
  const Rule rule = parse_rule(spec);
  if (rule.in.size() != 2 || rule.out.size() != 1 || in.size() != 2)
    throw_error("einsum: \"{}\" has {} operands and got {}; einsum takes two", spec, rule.in.size(), in.size());
  if (in[0].dtype != in[1].dtype)
    throw_error("einsum: {} and {} differ in element type; cast one of them", to_string(in[0]), to_string(in[1]));
  if (in[0].dtype == DType::boolean)
    throw_error("einsum: {} holds bool, which has no product; cast to a number", to_string(in[0]));
  if (product_type(in[0].dtype) != in[0].dtype)
    throw_error("einsum: products of {} are computed in {}; cast the operands", to_string(in[0]),
                name(product_type(in[0].dtype)));
  std::map<char, int64_t> size;
  for (size_t t = 0; t < 2; ++t) {
    const std::string& term = rule.in[t];
    if (term.size() != in[t].shape.size())
      throw_error("einsum: term \"{}\" of \"{}\" names {} dimensions and operand {} is {}", term, spec, term.size(), t,
                  to_string(in[t]));
    for (size_t d = 0; d < term.size(); ++d) {
      if (term.find(term[d]) != d)
        throw_error("einsum: '{}' appears twice in term \"{}\" of \"{}\"", term[d], term, spec);
      auto [it, fresh] = size.emplace(term[d], in[t].shape[d]);
      if (!fresh && it->second != in[t].shape[d])
        throw_error("einsum: '{}' of \"{}\" is {} in {} and {} in {}; the extents must agree", term[d], spec,
                    it->second, to_string(in[0].shape), in[t].shape[d], to_string(in[t].shape));
      const int times =
          has_index(rule.in[0], term[d]) + has_index(rule.in[1], term[d]) + has_index(rule.out[0], term[d]);
      if (times < 2) throw_error("einsum: '{}' of \"{}\" appears in only one term; sum over it first", term[d], spec);
    }
  }
  Type out{in[0].dtype, {}};
  for (size_t d = 0; d < rule.out[0].size(); ++d) {
    const char c = rule.out[0][d];
    if (!size.count(c) || rule.out[0].find(c) != d)
      throw_error("einsum: '{}' in the result of \"{}\" is not a letter of the operands, or appears twice", c, spec);
    out.shape.push_back(size[c]);
  }
  return {out};
}

Grads einsum_vjp(const Vjp& v) {
  const Rule r = parse_rule(v.attrs.get<std::string>("spec"));
  const std::string &a = r.in[0], &b = r.in[1], &y = r.out[0];
  Grads grads(2);
  if (v.wanted[0]) grads[0] = einsum(y + "," + b + "->" + a, v.ct(), v.in[1]);
  if (v.wanted[1]) grads[1] = einsum(a + "," + y + "->" + b, v.in[0], v.ct());
  return grads;
}

// Removes transposes of operands, and broadcasts along letters that the other operand and the result also have.
Value einsum_fold(const Fold& f) {
  Rule r = parse_rule(f.attrs.get<std::string>("spec"));
  Values in(f.in.begin(), f.in.end());
  bool changed = false;
  for (size_t i = 0; i < 2; ++i) {
    const Eqn* eqn = f.builder.definition(in[i]);
    if (!eqn) continue;
    const Value source = eqn->in.empty() ? Value() : Value(&f.builder, eqn->in[0]);
    std::string& term = r.in[i];
    if (eqn->op == &transpose_op) {
      const auto& permutation = eqn->attrs.ints("permutation");
      std::string inner(term.size(), ' ');
      for (size_t d = 0; d < term.size(); ++d) inner[static_cast<size_t>(permutation[d])] = term[d];
      term = inner;
    } else if (eqn->op == &broadcast_op) {
      const auto& dims = eqn->attrs.ints("dims");
      std::string inner;
      for (int64_t d : dims) inner += term[static_cast<size_t>(d)];
      bool droppable = true;
      for (char c : term)
        if (!has_index(inner, c)) droppable = droppable && has_index(r.in[1 - i], c) && has_index(r.out[0], c);
      if (!droppable) continue;
      term = inner;
    } else {
      continue;
    }
    in[i] = source;
    changed = true;
  }
  if (!changed) return {};
  return einsum(r.in[0] + "," + r.in[1] + "->" + r.out[0], in[0], in[1]);
}

// The extents of all letters, multiplied.
double einsum_multiply_adds(Types in, Types, const Attrs& attrs, double (*)(const Program&)) {
  const Rule rule = parse_rule(attrs.get<std::string>("spec"));
  std::map<char, int64_t> extents;
  for (size_t t = 0; t < rule.in.size(); ++t)
    for (size_t d = 0; d < rule.in[t].size(); ++d) extents[rule.in[t][d]] = in[t].shape[d];
  double out = 1;
  for (const auto& [letter, extent] : extents) out *= static_cast<double>(extent);
  return out;
}

}  // namespace

Kernel einsum_cpu(const KernelSpec&);
Kernel einsum_fused_cpu(const KernelSpec&);

namespace {

std::vector<Type> einsum_fused_type(Types in, const Attrs& attrs) {
  return with_body_type(einsum_type(in.first(2), attrs)[0], 2, in, attrs);
}
bool einsum_fused_alias(Types in, Types out, const Attrs& attrs, size_t operand, size_t result) {
  return with_body_alias(2, in, out, attrs, operand, result);
}

}  // namespace

constinit const Op einsum_fused_op = {
    .name = "einsum_fused",
    .type = einsum_fused_type,
    .alias = einsum_fused_alias,
    .multiply_adds = einsum_multiply_adds,
    .cpu = einsum_fused_cpu,
    .cuda = LOCKSTEP_CUDA(einsum_fused_cuda),
    .cuda_task = LOCKSTEP_CUDA(&einsum_task),
};

constinit const Op einsum_op = {
    .name = "einsum",
    .linear = Linear::one,
    .rule = einsum_rule,
    .pending = PendingReduction::sum,
    .type = einsum_type,
    .vjp = einsum_vjp,
    .dim_attrs = {{"spec", DimAttr::rule}},
    .fold = einsum_fold,
    .multiply_adds = einsum_multiply_adds,
    .with_epilogue = &einsum_fused_op,
    .cpu = einsum_cpu,
    .cuda = LOCKSTEP_CUDA(einsum_cuda),
    .cuda_task = LOCKSTEP_CUDA(&einsum_task),
};

namespace {

// Four products of real numbers.
Value complex_einsum(const std::string& spec, Value a, Value b) {
  const Value a_re = real(a), a_im = imag(a), b_re = real(b), b_im = imag(b);
  const Value re = sub(einsum(spec, a_re, b_re), einsum(spec, a_im, b_im));
  const Value im = add(einsum(spec, a_re, b_im), einsum(spec, a_im, b_re));
  return complex(re, im);
}

}  // namespace

Value einsum(std::string spec, Value a, Value b) {
  const DType dtype = a.dtype(), as = product_type(dtype);
  if (dtype == b.dtype() && is_complex(dtype)) return complex_einsum(spec, a, b);
  if (dtype == b.dtype() && as != dtype) return cast(einsum(std::move(spec), cast(a, as), cast(b, as)), dtype);
  return emit(einsum_op, {a, b}, {{"spec", std::move(spec)}});
}

}  // namespace lockstep
