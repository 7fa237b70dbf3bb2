#include "ops/index_array.h"

#include <cmath>

#include "base/dispatch.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

using Read = std::optional<IndexArray>;

// Whole numbers up to this one are exact in every type that affine arrays may have.
constexpr double kLargestNumber = 1 << 24;
// Equations to read. Masks of users have about twenty.
constexpr int kMostEqns = 256;

bool counts_exactly(DType dtype) {
  return dtype == DType::i32 || dtype == DType::i64 || dtype == DType::f32 || dtype == DType::f64;
}

bool is_constant(const AffineArray& a) {
  return std::all_of(a.steps.begin(), a.steps.end(), [](double step) { return step == 0; });
}
std::optional<double> constant_of(const IndexArray& x) {
  if (const auto* affine = std::get_if<AffineArray>(&x))
    return is_constant(*affine) ? std::optional(affine->constant) : std::nullopt;
  const auto& choice = std::get<ChoiceArray>(x);
  return choice.where.empty() || choice.yes == choice.no ? std::optional(choice.yes) : std::nullopt;
}

size_t rank_of(const IndexArray& x) {
  if (const auto* affine = std::get_if<AffineArray>(&x)) return affine->steps.size();
  return std::get<ChoiceArray>(x).rank;
}

AffineArray combined(const AffineArray& a, double by_a, const AffineArray& b, double by_b, double plus = 0) {
  AffineArray out{by_a * a.constant + by_b * b.constant + plus, std::vector<double>(a.steps.size())};
  for (size_t d = 0; d < out.steps.size(); ++d) out.steps[d] = by_a * a.steps[d] + by_b * b.steps[d];
  return out;
}

// The array if the type represents all of its elements exactly.
Read exact(AffineArray a, const Shape& shape) {
  double largest = std::abs(a.constant);
  for (size_t d = 0; d < shape.size(); ++d) largest += std::abs(a.steps[d]) * static_cast<double>(shape[d]);
  return largest <= kLargestNumber ? Read(std::move(a)) : std::nullopt;
}

// Affine arrays of whole numbers: not a >= 0 is -a - 1 >= 0.
bool is_whole(const AffineArray& a) {
  return a.constant == std::trunc(a.constant) &&
         std::all_of(a.steps.begin(), a.steps.end(), [](double step) { return step == std::trunc(step); });
}

// The same array with `yes` and `no` exchanged; nullopt if the negation is not a conjunction.
std::optional<ChoiceArray> exchanged(const ChoiceArray& x) {
  if (x.where.size() != 1 || !is_whole(x.where[0])) return {};
  const AffineArray& only = x.where[0];
  return ChoiceArray{{combined(only, -1, only, 0, -1)}, x.no, x.yes, x.rank};
}

// The same array with `no` as given.
std::optional<ChoiceArray> with_no(const ChoiceArray& x, double no) {
  if (x.where.empty()) return ChoiceArray{{}, x.yes, no, x.rank};
  if (x.no == no) return x;
  return x.yes == no ? exchanged(x) : std::nullopt;
}

// Applies `f`, which maps affine arrays and dimensions, to the array.
template <class F>
IndexArray mapped(const IndexArray& x, size_t rank, const F& f) {
  if (const auto* affine = std::get_if<AffineArray>(&x)) return f(*affine);
  ChoiceArray choice = std::get<ChoiceArray>(x);
  for (AffineArray& a : choice.where) a = f(a);
  choice.rank = rank;
  return choice;
}

// Dimension d of `x` becomes dimension to[d], or is dropped if that is -1: its extent is 1.
IndexArray moved(const IndexArray& x, const Dims& to, size_t rank) {
  return mapped(x, rank, [&](const AffineArray& a) {
    AffineArray out{a.constant, std::vector<double>(rank, 0)};
    for (size_t d = 0; d < to.size(); ++d)
      if (to[d] >= 0) out.steps[static_cast<size_t>(to[d])] = a.steps[d];
    return out;
  });
}

// ---- views

// For a reshape that adds or removes dimensions of extent 1: where each dimension goes.
std::optional<Dims> reshape_moves(const Shape& from, const Shape& to) {
  Dims moves(from.size(), -1);
  size_t j = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == 1) continue;
    while (j < to.size() && to[j] == 1) ++j;
    if (j == to.size() || to[j] != from[i]) return {};
    moves[i] = static_cast<int64_t>(j++);
  }
  while (j < to.size() && to[j] == 1) ++j;
  return j == to.size() ? std::optional(moves) : std::nullopt;
}

Read read_view(const Eqn& eqn, const IndexArray& x, const Type& in, const Type& out) {
  const auto rank = out.shape.size();
  if (eqn.op == &broadcast_op) return moved(x, eqn.attrs.ints("dims"), rank);
  if (eqn.op == &transpose_op) return moved(x, inverse(eqn.attrs.ints("permutation")), rank);
  if (eqn.op == &reshape_op) {
    if (const auto moves = reshape_moves(in.shape, out.shape)) return moved(x, *moves, rank);
    const std::optional<double> constant = constant_of(x);
    return constant ? Read(ChoiceArray{{}, *constant, *constant, rank}) : std::nullopt;
  }
  if (eqn.op != &slice_op) return {};
  return mapped(x, rank, [&](const AffineArray& a) {
    AffineArray part = a;
    for (size_t d = 0; d < part.steps.size(); ++d) {
      part.constant += a.steps[d] * static_cast<double>(eqn.attrs.ints("starts")[d]);
      part.steps[d] = a.steps[d] * static_cast<double>(eqn.attrs.ints("strides")[d]);
    }
    return part;
  });
}

// ---- arithmetic

double applied(const Op* op, double a, double b) {
  if (op == &add_op) return a + b;
  if (op == &sub_op) return a - b;
  if (op == &mul_op) return a * b;
  if (op == &eq_op) return a == b;
  if (op == &ne_op) return a != b;
  if (op == &lt_op) return a < b;
  if (op == &le_op) return a <= b;
  if (op == &gt_op) return a > b;
  return a >= b;
}

// Comparisons of affine arrays of whole numbers.
Read compared(const Op* op, const AffineArray& a, const AffineArray& b) {
  const AffineArray more = combined(a, 1, b, -1), less = combined(a, -1, b, 1);
  if (!is_whole(more)) return {};
  const auto choice = [&](std::vector<AffineArray> where, bool yes) {
    return ChoiceArray{std::move(where), yes ? 1.0 : 0.0, yes ? 0.0 : 1.0, a.steps.size()};
  };
  if (op == &ge_op) return choice({more}, true);
  if (op == &le_op) return choice({less}, true);
  if (op == &lt_op) return choice({more}, false);
  if (op == &gt_op) return choice({less}, false);
  return choice({more, less}, op == &eq_op);
}

bool is_comparison(const Op* op) {
  return op == &eq_op || op == &ne_op || op == &lt_op || op == &le_op || op == &gt_op || op == &ge_op;
}

// A choice between what `f` makes of the two values; nullopt if an unsigned type lacks one of them.
template <class F>
Read mapped_values(const ChoiceArray& x, const Type& type, const F& f) {
  const ChoiceArray out{x.where, f(x.yes), f(x.no), x.rank};
  return is_unsigned(type.dtype) && (out.yes < 0 || out.no < 0) ? Read() : Read(out);
}

// A constant as an affine array.
std::optional<AffineArray> affine_of(const IndexArray& x) {
  if (const std::optional<double> constant = constant_of(x))
    return AffineArray{*constant, std::vector<double>(rank_of(x), 0)};
  const auto* affine = std::get_if<AffineArray>(&x);
  return affine ? std::optional(*affine) : std::nullopt;
}

Read read_arithmetic(const Op* op, const IndexArray& a, const IndexArray& b, const Type& in) {
  const std::optional<double> constant_a = constant_of(a), constant_b = constant_of(b);
  if (const auto* choice = std::get_if<ChoiceArray>(&a); choice && constant_b)
    return mapped_values(*choice, in, [&](double x) { return applied(op, x, *constant_b); });
  if (const auto* choice = std::get_if<ChoiceArray>(&b); choice && constant_a)
    return mapped_values(*choice, in, [&](double x) { return applied(op, *constant_a, x); });
  const std::optional<AffineArray> left = affine_of(a), right = affine_of(b);
  if (!left || !right || !counts_exactly(in.dtype)) return {};
  if (is_comparison(op)) return compared(op, *left, *right);
  if (op == &add_op) return exact(combined(*left, 1, *right, 1), in.shape);
  if (op == &sub_op) return exact(combined(*left, 1, *right, -1), in.shape);
  if (constant_a) return exact(combined(*right, *constant_a, *right, 0), in.shape);
  if (constant_b) return exact(combined(*left, *constant_b, *left, 0), in.shape);
  return {};
}

// Both, if both are `yes` on a conjunction.
Read both(const ChoiceArray& a, const ChoiceArray& b, double yes, double no) {
  ChoiceArray out{a.where, yes, no, a.rank};
  out.where.insert(out.where.end(), b.where.begin(), b.where.end());
  return out;
}

// `a and b`, or with `negated` `a or b`: the negation of `not a and not b`.
Read read_logic(const IndexArray& a, const IndexArray& b, bool negated) {
  const auto *left = std::get_if<ChoiceArray>(&a), *right = std::get_if<ChoiceArray>(&b);
  if (!left || !right) return {};
  const double no = negated ? 1 : 0;
  const auto x = with_no(*left, no), y = with_no(*right, no);
  if (!x || !y) return {};
  // An array of one value may be `no` everywhere.
  if ((x->where.empty() && x->yes == no) || (y->where.empty() && y->yes == no)) return ChoiceArray{{}, no, no, x->rank};
  return both(*x, *y, 1 - no, no);
}

// when ? a : b, where b is a constant and a one, or a choice between one and b.
Read read_select(const IndexArray& when, const IndexArray& a, const IndexArray& b) {
  const auto* choice = std::get_if<ChoiceArray>(&when);
  if (!choice) return {};
  const std::optional<double> yes = constant_of(a), no = constant_of(b);
  if (yes && no)
    return ChoiceArray{choice->where, choice->yes != 0 ? *yes : *no, choice->no != 0 ? *yes : *no, choice->rank};
  const bool first = no.has_value();  // the constant is taken where `when` is false
  if (!first && !yes) return {};
  const auto* inner = std::get_if<ChoiceArray>(first ? &a : &b);
  const double constant = first ? *no : *yes;
  if (!inner) return {};
  const auto outer = with_no(*choice, first ? 0 : 1), rest = with_no(*inner, constant);
  if (!outer || !rest) return {};
  if (outer->where.empty() && (outer->yes != 0) != first) return ChoiceArray{{}, constant, constant, outer->rank};
  return both(*outer, *rest, rest->yes, constant);
}

// ---- equations

Read read_source(const Eqn& eqn, const Type& out) {
  const size_t rank = out.shape.size();
  if (eqn.op == &full_op) {
    const Attr& attr = *eqn.attrs.find("value");
    const auto* real = std::get_if<double>(&attr);
    const double x = real ? *real : static_cast<double>(std::get<int64_t>(attr));
    return ChoiceArray{{}, x, x, rank};
  }
  if (!counts_exactly(out.dtype)) return {};
  AffineArray counts{static_cast<double>(eqn.attrs.get_or<int64_t>("start", 0)), std::vector<double>(rank, 0)};
  counts.steps[static_cast<size_t>(eqn.attrs.integer("dim"))] = 1;
  return exact(std::move(counts), out.shape);
}

Read read_cast(const IndexArray& x, const Type& in, const Type& out) {
  const auto* choice = std::get_if<ChoiceArray>(&x);
  if (!choice) return counts_exactly(in.dtype) && counts_exactly(out.dtype) ? Read(x) : std::nullopt;
  if (is_inexact(out.dtype)) return is_floating(out.dtype) ? Read(x) : std::nullopt;
  const bool to_bool = out.dtype == DType::boolean;
  const auto is_bit = [](double value) { return value == 0 || value == 1; };
  if (!to_bool && (!is_bit(choice->yes) || !is_bit(choice->no))) return {};
  return ChoiceArray{choice->where, choice->yes != 0 ? 1.0 : 0.0, choice->no != 0 ? 1.0 : 0.0, choice->rank};
}

// ---- inputs whose elements are known

// A matrix of two values that are separated by a diagonal, as tril() makes it. REQUIRES: no dimension is 0.
template <class T>
Read read_triangle(const T* x, int64_t rows, int64_t columns) {
  const auto at = [&](int64_t i, int64_t j) {
    const T& element = x[i * columns + j];
    if constexpr (is_half<T>)
      return static_cast<double>(static_cast<float>(element));
    else
      return static_cast<double>(element);
  };
  const double yes = at(rows - 1, 0), no = at(0, columns - 1);
  // The last column of the first row, or the first row, that has a `yes`: there is one where column - row <= diagonal.
  int64_t diagonal = -1;
  if (at(0, 0) == yes) {
    while (diagonal + 1 < columns && at(0, diagonal + 1) == yes) ++diagonal;
  } else {
    diagonal = 1 - rows;
    while (at(-diagonal - 1, 0) == yes) ++diagonal;
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      if (at(i, j) != (j - i <= diagonal ? yes : no)) return {};
  return ChoiceArray{{{static_cast<double>(diagonal), {1, -1}}}, yes, no, 2};
}

Read read_contents(const DefinedValue& value) {
  const Type& type = value.type();
  Dims large;
  for (size_t d = 0; d < type.shape.size(); ++d)
    if (type.shape[d] != 1) large.push_back(static_cast<int64_t>(d));
  if (large.size() != 2 || count(type.shape) == 0) return {};
  const void* elements = value.contents();
  if (!elements) return {};
  const int64_t rows = type.shape[static_cast<size_t>(large[0])], columns = type.shape[static_cast<size_t>(large[1])];
  if (is_complex(type.dtype)) return {};
  const Read found = with_dtype(
      type.dtype, [&]<class T>() -> Read { return read_triangle(static_cast<const T*>(elements), rows, columns); });
  return found ? Read(moved(*found, large, type.shape.size())) : std::nullopt;
}

class Reader {
 public:
  Read read(const DefinedValue& value) {
    const Eqn* eqn = value.eqn();
    if (++eqns_ > kMostEqns) return {};
    if (!eqn) return read_contents(value);
    if (eqn->op == &full_op || eqn->op == &iota_op) return read_source(*eqn, value.type());
    if (!is_known(*eqn)) return {};
    std::vector<IndexArray> in;
    for (size_t i = 0; i < eqn->in.size(); ++i) {
      Read x = read(value.operand(i));
      if (!x) return {};
      in.push_back(std::move(*x));
    }
    return combine(*eqn, in, value.operand(0).type(), value.type());
  }

 private:
  static bool is_known(const Eqn& eqn) {
    return eqn.op->view || is_comparison(eqn.op) || eqn.op == &add_op || eqn.op == &sub_op || eqn.op == &mul_op ||
           eqn.op == &neg_op || eqn.op == &bit_and_op || eqn.op == &bit_or_op || eqn.op == &bit_not_op ||
           eqn.op == &select_op || eqn.op == &cast_op || eqn.op == &pvary_op;
  }

  static Read combine(const Eqn& eqn, const std::vector<IndexArray>& in, const Type& first, const Type& out) {
    if (eqn.op == &pvary_op || eqn.op == &stop_gradient_op) return in[0];
    if (eqn.op->view) return read_view(eqn, in[0], first, out);
    if (eqn.op == &cast_op) return read_cast(in[0], first, out);
    if (eqn.op == &select_op) return read_select(in[0], in[1], in[2]);
    const IndexArray zero = ChoiceArray{{}, 0, 0, out.shape.size()};
    if (eqn.op == &neg_op) return read_arithmetic(&sub_op, zero, in[0], first);
    const bool logic = out.dtype == DType::boolean;
    if (eqn.op == &bit_not_op) return logic ? read_arithmetic(&eq_op, in[0], zero, first) : Read();
    if (eqn.op == &bit_and_op || eqn.op == &bit_or_op)
      return logic ? read_logic(in[0], in[1], eqn.op == &bit_or_op) : Read();
    return read_arithmetic(eqn.op, in[0], in[1], first);
  }

  int eqns_ = 0;
};

}  // namespace

std::optional<IndexArray> read_index_array(const DefinedValue& value) { return Reader().read(value); }

std::optional<double> read_constant(const DefinedValue& value) {
  const Read x = Reader().read(value);
  return x ? constant_of(*x) : std::nullopt;
}

std::optional<ChoiceArray> read_choice(const DefinedValue& value) {
  const Read x = Reader().read(value);
  if (!x || !std::holds_alternative<ChoiceArray>(*x)) return {};
  return std::get<ChoiceArray>(*x);
}

}  // namespace lockstep
