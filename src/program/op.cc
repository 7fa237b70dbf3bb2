#include "program/op.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "base/check.h"

namespace lockstep {

Rule pointwise_rule(Types in, const Attrs&) {
  std::string factors;
  if (!in.empty())
    for (size_t d = 0; d < in[0].shape.size(); ++d) factors += static_cast<char>('a' + d);
  return {std::vector<std::string>(in.size(), factors), {factors}, ""};
}

int64_t step_of(const Steps& steps, size_t term, char factor) {
  if (term >= steps.size()) return 1;
  const auto at = steps[term].find(factor);
  return at == steps[term].end() ? 1 : at->second;
}

Halo halo_of(const Rule& rule, size_t term, char factor) {
  if (term >= rule.in_halo.size()) return {};
  const auto at = rule.in_halo[term].find(factor);
  return at == rule.in_halo[term].end() ? Halo() : at->second;
}

Halo halo_of_shard(const Rule& rule, size_t term, char factor, Range range, int64_t steps) {
  const Halo halo = halo_of(rule, term, factor);
  return {range.begin > 0 ? halo.before : 0, range.end < steps ? halo.after : 0};
}

Rule parse_rule(std::string_view text) {
  Rule rule;
  const size_t arrow = text.find("->");
  LOCKSTEP_CHECK(arrow != std::string_view::npos, "rule '{}' has no arrow", text);
  auto terms = [](std::string_view side) {
    std::vector<std::string> out(1);
    for (char c : side) {
      if (c == ',')
        out.emplace_back();
      else if (c != ' ')
        out.back() += c;
    }
    return out;
  };
  rule.in = terms(text.substr(0, arrow));
  rule.out = terms(text.substr(arrow + 2));
  return rule;
}

std::vector<std::string> union_of(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::string> out;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

std::vector<std::string> without_axis_name(std::vector<std::string> axes, const std::string& axis) {
  std::erase(axes, axis);
  return axes;
}

namespace {

void check_float8(const Op& op, Types in) {
  if (op.takes_float8 || op.view) return;
  for (size_t i = 0; i < in.size(); ++i)
    if (is_float8(in[i].dtype))
      throw_error("{}: operand {} is {}; 8-bit floats are only stored: cast it to bf16 or f32", op.name, i,
                  to_string(in[i]));
}

void check_complex(const Op& op, Types in) {
  if (op.takes_complex || op.takes_float8 || op.view) return;
  for (size_t i = 0; i < in.size(); ++i)
    if (is_complex(in[i].dtype))
      throw_error("{}: operand {} is {}; the op takes no complex numbers: use real(), imag() or abs() of it", op.name,
                  i, to_string(in[i]));
}

std::vector<Type> types_by_row(const Op& op, Types in, const Attrs& attrs) {
  check_float8(op, in);
  check_complex(op, in);
  if (op.type) return op.type(in, attrs);
  LOCKSTEP_CHECK(op.rule, "{} has neither a type nor a rule", op.name);
  const Rule rule = op.rule(in, attrs);
  if (rule.in.size() != in.size())
    throw_error("{}: {} operands given; the op takes {}", op.name, in.size(), rule.in.size());
  std::map<char, int64_t> size;
  for (size_t t = 0; t < in.size(); ++t) {
    if (in[t].dtype != in[0].dtype)
      throw_error("{}: operand 0 is {} and operand {} is {}; cast one of them", op.name, to_string(in[0]), t,
                  to_string(in[t]));
    if (rule.in[t].size() != in[t].shape.size())
      throw_error("{}: operand {} is {}, of rank {}; rank {} is required", op.name, t, to_string(in[t]), in[t].rank(),
                  rule.in[t].size());
    for (size_t d = 0; d < in[t].shape.size(); ++d) {
      auto [it, fresh] = size.emplace(rule.in[t][d], in[t].shape[d]);
      if (!fresh && it->second != in[t].shape[d])
        throw_error(
            "{}: dimension {} of operand {}, {}, has extent {}, but another operand has {}; the extents must agree",
            op.name, d, t, to_string(in[t].shape), in[t].shape[d], it->second);
    }
  }
  std::vector<Type> out;
  for (const std::string& factors : rule.out) {
    Type type{in.empty() ? DType::f32 : in[0].dtype, {}};
    for (char f : factors) type.shape.push_back(size.at(f));
    out.push_back(std::move(type));
  }
  return out;
}

}  // namespace

std::vector<Type> infer_types(const Op& op, Types in, const Attrs& attrs) {
  if (op.own_varying) return types_by_row(op, in, attrs);
  std::vector<std::string> varying;
  for (const Type& t : in)
    if (!t.varying.empty()) varying = union_of(varying, t.varying);
  if (varying.empty()) return types_by_row(op, in, attrs);
  // Rows see types without varying axes.
  std::vector<Type> plain(in.begin(), in.end());
  for (Type& t : plain) t.varying.clear();
  std::vector<Type> out = types_by_row(op, plain, attrs);
  for (Type& t : out) t.varying = varying;
  return out;
}

LocalEqn local_eqn(const Op& op, Types in, const Attrs& attrs, const FactorRanges& ranges) {
  LOCKSTEP_CHECK(op.rule, "{} has no rule", op.name);
  const Rule rule = op.rule(in, attrs);
  const std::vector<Type> out = infer_types(op, in, attrs);
  for (const auto& [factor, range] : ranges)
    LOCKSTEP_CHECK(rule.unsharded.find(factor) == std::string::npos, "{}: factor {} must not be sharded", op.name,
                   factor);
  auto local_types = [&](Types global, const std::vector<std::string>& terms, const Steps& steps) {
    std::vector<Type> types(global.begin(), global.end());
    for (size_t t = 0; t < types.size(); ++t)
      for (size_t d = 0; d < terms[t].size(); ++d)
        if (const auto range = ranges.find(terms[t][d]); range != ranges.end())
          types[t].shape[d] = range->second.size() * step_of(steps, t, terms[t][d]);
    return types;
  };
  const auto with_halos = [&](std::vector<Type> types) {
    for (size_t t = 0; t < types.size(); ++t)
      for (size_t d = 0; d < types[t].shape.size(); ++d)
        if (const auto range = ranges.find(rule.in[t][d]); range != ranges.end()) {
          const int64_t steps = in[t].shape[d] / step_of(rule.in_step, t, range->first);
          const Halo halo = halo_of_shard(rule, t, range->first, range->second, steps);
          types[t].shape[d] += halo.before + halo.after;
        }
    return types;
  };
  LocalEqn local{attrs, with_halos(local_types(in, rule.in, rule.in_step)), local_types(out, rule.out, rule.out_step)};
  if (op.local) local.attrs = op.local({attrs, in, out, rule, ranges, local.in, local.out});
  const std::vector<Type> made = infer_types(op, local.in, local.attrs);
  for (size_t k = 0; k < made.size(); ++k)
    LOCKSTEP_CHECK(made[k] == local.out[k], "{}: the local type of result {} is {} by the rule and {} by its types",
                   op.name, k, to_string(local.out[k]), to_string(made[k]));
  return local;
}

Attrs with_local_shape(const LocalEqnContext& v) {
  Attrs attrs = v.attrs;
  attrs.set("shape", v.local_out[0].shape);
  return attrs;
}

}  // namespace lockstep
