#include <algorithm>
#include <cctype>
#include <map>
#include <string>

#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "ops/dims.h"
#include "ops/einsum.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

using detail::at_axis;
using detail::axis_of;

bool has(const std::string& term, char letter) { return term.find(letter) != std::string::npos; }

// A value and the letters of its dimensions.
struct EinsumTerm {
  Value value;
  std::string term;
};

// A letter that occurs twice takes the diagonal of its two dimensions.
EinsumTerm diagonal(EinsumTerm x) {
  for (size_t second = 0; second < x.term.size(); ++second) {
    const size_t first = x.term.find(x.term[second]);
    if (first == second) continue;
    // With the last two dimensions [n, n] flattened, the diagonal is every (n + 1)th element.
    const auto one = static_cast<int64_t>(first), other = static_cast<int64_t>(second);
    const int64_t n = x.value.shape()[second];
    Dims order = detail::other_axes(x.value.rank(), {one, other}), strides(order.size(), 1);
    Shape row;
    std::string term;
    for (int64_t d : order) {
      row.push_back(x.value.shape()[at_axis(d)]);
      term += x.term[at_axis(d)];
    }
    order.insert(order.end(), {one, other});
    strides.push_back(n + 1);
    row.push_back(n * n);
    term += x.term[second];
    x = {slice(reshape(transpose(x.value, order), row), Dims(row.size(), 0), row, strides), term};
    second = 0;
  }
  return x;
}

// Sums over the letters that are not in `wanted`.
EinsumTerm sum_others(const EinsumTerm& x, const std::string& wanted) {
  Dims axes;
  std::string term;
  for (size_t d = 0; d < x.term.size(); ++d) {
    if (has(wanted, x.term[d]))
      term += x.term[d];
    else
      axes.push_back(static_cast<int64_t>(d));
  }
  return axes.empty() ? x : EinsumTerm{reduce_sum(x.value, axes), term};
}

Value ordered(const EinsumTerm& x, const std::string& out) {
  Dims permutation;
  for (char letter : out) permutation.push_back(static_cast<int64_t>(x.term.find(letter)));
  return permutation == counting(0, x.value.rank()) ? x.value : transpose(x.value, permutation);
}

Value contract(const EinsumTerm& a, const EinsumTerm& b, const std::string& out) {
  const EinsumTerm left = sum_others(a, b.term + out), right = sum_others(b, a.term + out);
  return einsum(left.term + "," + right.term + "->" + out, left.value, right.value);
}

struct Spec {
  std::vector<std::string> in;
  std::string out;
  std::string batch = {};  // the letters of "..."
};

// The letters that occur once in all terms, sorted, without those of `batch`.
std::string implicit_output(const std::vector<std::string>& terms, const std::string& batch) {
  std::map<char, int> times;
  for (const std::string& term : terms)
    for (char letter : term) ++times[letter];
  std::string out;
  for (const auto& [letter, n] : times)
    if (n == 1 && !has(batch, letter)) out += letter;
  return out;
}

constexpr std::string_view kDots = "...";

// Replaces the "..." of each term by unused letters. All terms share one list; a shorter "..." uses its last
// letters.
void expand_dots(std::string_view text, std::span<const Array> operands, bool has_result, Spec& spec) {
  std::vector<size_t> dims(spec.in.size(), 0);
  size_t most = 0;
  std::string used = spec.out;
  for (size_t i = 0; i < spec.in.size(); ++i) {
    used += spec.in[i];
    if (spec.in[i].find(kDots) == std::string::npos) continue;
    const size_t letters = spec.in[i].size() - kDots.size(), rank = operands[i].shape().size();
    if (rank < letters)
      throw_error(
          "einsum: term \"{}\" of \"{}\" names {} dimensions, but its operand is {}; name at most its dimensions",
          spec.in[i], text, letters, to_string(operands[i].shape()));
    dims[i] = rank - letters;
    most = std::max(most, dims[i]);
  }
  for (char c = 'A'; spec.batch.size() < most && c <= 'z'; ++c)
    if (std::isalpha(static_cast<unsigned char>(c)) && !has(used, c)) spec.batch += c;
  if (spec.batch.size() < most)
    throw_error("einsum: \"{}\" needs more than 52 letters; reshape the operands to fewer dimensions", text);
  const auto replace = [&](std::string& term, size_t n) {
    const size_t at = term.find(kDots);
    if (at != std::string::npos) term.replace(at, kDots.size(), spec.batch.substr(most - n));
  };
  for (size_t i = 0; i < spec.in.size(); ++i) replace(spec.in[i], dims[i]);
  if (has_result && most > 0 && spec.out.find(kDots) == std::string::npos)
    throw_error(
        "einsum: the result of \"{}\" lacks the \"...\" of its operands; add it, or name the dimensions to sum over",
        text);
  replace(spec.out, most);
}

Spec parse_spec(std::string_view text, std::span<const Array> operands) {
  std::string spec;
  for (char c : text)
    if (c != ' ') spec += c;
  const size_t arrow = spec.find("->");
  std::string inputs = spec.substr(0, arrow);
  Spec out;
  for (size_t begin = 0;;) {
    const size_t comma = inputs.find(',', begin);
    out.in.push_back(inputs.substr(begin, comma == std::string::npos ? comma : comma - begin));
    if (comma == std::string::npos) break;
    begin = comma + 1;
  }
  const bool has_result = arrow != std::string::npos;
  if (has_result) out.out = spec.substr(arrow + 2);
  auto check_letters = [&](std::string term) {
    if (const size_t dots = term.find(kDots); dots != std::string::npos) term.erase(dots, kDots.size());
    for (char c : term)
      if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z'))
        throw_error("einsum: '{}' in \"{}\" is not a letter; write one letter per dimension, as in \"ij,jk->ik\"", c,
                    text);
  };
  for (const std::string& term : out.in) check_letters(term);
  check_letters(out.out);
  if (out.in.size() != operands.size())
    throw_error("einsum: \"{}\" has {} terms for {} operands; pass one operand per term", text, out.in.size(),
                operands.size());
  expand_dots(text, operands, has_result, out);
  if (!has_result) out.out = out.batch + implicit_output(out.in, out.batch);
  for (size_t i = 0; i < out.out.size(); ++i) {
    const char c = out.out[i];
    if (out.out.find(c) != i)
      throw_error("einsum: '{}' occurs twice in the result of \"{}\"; name each dimension once", c, text);
    if (std::none_of(out.in.begin(), out.in.end(), [&](const std::string& term) { return has(term, c); }))
      throw_error("einsum: '{}' in the result of \"{}\" occurs in no operand; use only letters of the operands", c,
                  text);
  }
  return out;
}

// Removes dimensions of extent 1 that "..." broadcasts against other operands.
void drop_broadcast_dims(Spec& spec, Values& v) {
  std::vector<Shape> batches;
  for (size_t i = 0; i < v.size() && !spec.batch.empty(); ++i) {
    Shape& batch = batches.emplace_back();
    for (size_t d = 0; d < std::min(spec.in[i].size(), v[i].shape().size()); ++d)
      if (has(spec.batch, spec.in[i][d])) batch.push_back(v[i].shape()[d]);
  }
  const Shape common = detail::broadcast_shape("einsum", batches);
  for (size_t i = 0; i < batches.size(); ++i) {
    if (spec.in[i].size() != v[i].shape().size()) continue;  // check_extents() reports it
    Shape kept;
    std::string term;
    for (size_t d = 0; d < spec.in[i].size(); ++d) {
      const size_t at = spec.batch.find(spec.in[i][d]);
      if (at != std::string::npos && v[i].shape()[d] == 1 && common[at] != 1) continue;
      kept.push_back(v[i].shape()[d]);
      term += spec.in[i][d];
    }
    if (term == spec.in[i]) continue;
    v[i] = reshape(v[i], kept);
    spec.in[i] = term;
  }
}

void check_extents(std::string_view text, const Spec& spec, const Values& v) {
  struct Seen {
    int64_t extent;
    size_t operand;
  };
  std::map<char, Seen> seen;
  for (size_t i = 0; i < v.size(); ++i) {
    const std::string& term = spec.in[i];
    const Shape& shape = v[i].shape();
    if (term.size() != shape.size())
      throw_error("einsum: term \"{}\" of \"{}\" names {} dimensions, but its operand is {}; name each dimension", term,
                  text, term.size(), to_string(shape));
    for (size_t d = 0; d < term.size(); ++d) {
      const auto [it, fresh] = seen.emplace(term[d], Seen{shape[d], i});
      if (it->second.extent != shape[d])
        throw_error("einsum: '{}' of \"{}\" is {} in {} and {} in {}; the extents must agree", term[d], text,
                    it->second.extent, to_string(v[it->second.operand].shape()), shape[d], to_string(shape));
    }
  }
}

// Letters [begin, begin + n) of the 52 letters.
std::string letters(int64_t begin, int64_t n) {
  Factors factors;
  return factors.next(begin + n).substr(at_axis(begin));
}

// `key`: of the call, if it identifies f.
Array contraction(const char* what, const Array& a, const Array& b, FunctionRef<Value(Value, Value)> f,
                  const detail::CallKey& key = {}) {
  const Array both[] = {a, b};
  const DType dtype = detail::number_of(detail::common_dtype(both));
  return detail::apply1(
      what, {a, b},
      [&](Builder&, const Values& v) { return f(detail::convert(v[0], dtype), detail::convert(v[1], dtype)); }, dtype,
      key);
}

void check_fit(const char* what, const Array& a, int64_t axis_a, const Array& b, int64_t axis_b) {
  if (a.shape(axis_a) == b.shape(axis_b)) return;
  throw_error(
      "{}: shapes {} and {} do not fit: dimension {} of the first is {}, dimension {} of the second is {}; they must "
      "be equal",
      what, to_string(a.shape()), to_string(b.shape()), axis_a, a.shape(axis_a), axis_b, b.shape(axis_b));
}

// Removes leading dimensions of extent 1 that broadcast: the product need not repeat them.
EinsumTerm without_broadcast_dims(Value x, const std::string& term, const Shape& batch, size_t own) {
  Dims gone;
  const size_t n = term.size() - own;
  for (size_t d = 0; d < n; ++d)
    if (x.shape()[d] == 1 && batch[batch.size() - n + d] != 1) gone.push_back(static_cast<int64_t>(d));
  if (gone.empty()) return {x, term};
  std::string kept;
  for (size_t d = 0; d < term.size(); ++d)
    if (!contains(gone, static_cast<int64_t>(d))) kept += term[d];
  return {reshape(x, without(x.shape(), gone)), kept};
}

}  // namespace

Array dot(const Operand& a, const Operand& b) {
  if (a.rank() == 0 || b.rank() == 0) return a * b;
  const int64_t ra = a.rank(), rb = b.rank(), axis_b = std::max<int64_t>(rb - 2, 0);
  check_fit("dot", a, ra - 1, b, axis_b);
  const std::string ta = letters(0, ra);
  std::string tb = letters(ra, rb);
  tb[at_axis(axis_b)] = ta.back();
  std::string out = ta.substr(0, at_axis(ra - 1)) + tb;
  out.erase(at_axis(ra - 1 + axis_b), 1);
  return contraction(
      "dot", a, b, [&](Value x, Value y) { return einsum(ta + "," + tb + "->" + out, x, y); }, detail::CallKey("dot"));
}

Array matmul(const Operand& a, const Operand& b) {
  if (a.rank() == 0 || b.rank() == 0)
    throw_error("matmul: operands {} and {} include a scalar; use * to scale", to_string(a.shape()),
                to_string(b.shape()));
  const int64_t ra = a.rank(), rb = b.rank();
  check_fit("matmul", a, ra - 1, b, std::max<int64_t>(rb - 2, 0));
  const size_t own_a = ra > 1 ? 2 : 1, own_b = rb > 1 ? 2 : 1;
  const Shape batches[] = {Shape(a.shape().begin(), a.shape().end() - static_cast<int64_t>(own_a)),
                           Shape(b.shape().begin(), b.shape().end() - static_cast<int64_t>(own_b))};
  const Shape batch = detail::broadcast_shape("matmul", batches);
  const std::string own = letters(0, 3), lead = letters(3, static_cast<int64_t>(batch.size()));
  const std::string rows = ra > 1 ? own.substr(0, 1) : "", inner = own.substr(1, 1),
                    columns = rb > 1 ? own.substr(2, 1) : "";
  const std::string ta = lead.substr(batch.size() - batches[0].size()) + rows + inner;
  const std::string tb = lead.substr(batch.size() - batches[1].size()) + inner + columns;
  return contraction(
      "matmul", a, b,
      [&](Value x, Value y) {
        return contract(without_broadcast_dims(x, ta, batch, own_a), without_broadcast_dims(y, tb, batch, own_b),
                        lead + rows + columns);
      },
      detail::CallKey("matmul"));
}

Array einsum(std::string_view spec, const Operand& a) { return einsum(spec, std::vector<Array>{a}); }
Array einsum(std::string_view spec, const Operand& a, const Operand& b) {
  return einsum(spec, std::vector<Array>{a, b});
}

Array einsum(std::string_view spec, const Operands& operands) {
  const Spec parsed = parse_spec(spec, operands);
  const DType dtype = detail::number_of(detail::common_dtype(operands));
  return detail::apply("einsum", operands, dtype, [&](Builder&, const Values& given) {
    Values v = given;
    Spec terms = parsed;
    drop_broadcast_dims(terms, v);
    check_extents(spec, terms, v);
    auto operand = [&](size_t i) { return diagonal({detail::convert(v[i], dtype), terms.in[i]}); };
    EinsumTerm product = operand(0);
    for (size_t i = 1; i < v.size(); ++i) {
      const EinsumTerm next = operand(i);
      std::string later = terms.out, out;
      for (size_t j = i + 1; j < v.size(); ++j) later += terms.in[j];
      for (char letter : product.term + next.term)
        if (has(later, letter) && !has(out, letter)) out += letter;
      if (i + 1 == v.size()) out = terms.out;
      product = {contract(product, next, out), out};
    }
    return Values{ordered(sum_others(product, terms.out), terms.out)};
  })[0];
}

Array outer(const Operand& a, const Operand& b) {
  return contraction("outer", a, b, [](Value x, Value y) {
    return einsum("i,j->ij", reshape(x, {count(x.shape())}), reshape(y, {count(y.shape())}));
  });
}

Array tensordot(const Operand& a, const Operand& b, int64_t axes) {
  if (axes < 0 || axes > std::min(a.rank(), b.rank()))
    throw_error("tensordot: {} axes for {} and {}; use at most the lower rank", axes, to_string(a.shape()),
                to_string(b.shape()));
  return tensordot(a, b, counting(a.rank() - axes, a.rank()), counting(0, axes));
}

Array tensordot(const Operand& a, const Operand& b, const std::vector<int64_t>& axes_a,
                const std::vector<int64_t>& axes_b) {
  if (axes_a.size() != axes_b.size())
    throw_error("tensordot: {} axes of the first operand and {} of the second; give them in pairs", axes_a.size(),
                axes_b.size());
  detail::axes_of("tensordot", axes_a, a.shape());
  detail::axes_of("tensordot", axes_b, b.shape());
  if (a.rank() + b.rank() > 52)
    throw_error("tensordot: {} and {} have {} dimensions together, more than 52; reshape one of them",
                to_string(a.shape()), to_string(b.shape()), a.rank() + b.rank());
  const std::string ta = letters(0, a.rank());
  std::string tb = letters(a.rank(), b.rank()), out;
  for (size_t i = 0; i < axes_a.size(); ++i) {
    const int64_t of_a = axis_of("tensordot", axes_a[i], a.shape()), of_b = axis_of("tensordot", axes_b[i], b.shape());
    check_fit("tensordot", a, of_a, b, of_b);
    tb[at_axis(of_b)] = ta[at_axis(of_a)];
  }
  for (char letter : ta)
    if (!has(tb, letter)) out += letter;
  for (char letter : tb)
    if (!has(ta, letter)) out += letter;
  return contraction("tensordot", a, b, [&](Value x, Value y) { return einsum(ta + "," + tb + "->" + out, x, y); });
}

}  // namespace lockstep
