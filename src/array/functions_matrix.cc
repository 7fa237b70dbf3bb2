#include <cmath>
#include <functional>

#include "array/matrices.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"

namespace lockstep::linalg {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string text_of(const NormOrder& ord) {
  return ord.name().empty() ? fmt::format("{}", ord.number()) : std::string(ord.name());
}

Array vector_norm(const Array& x, const std::optional<NormOrder>& ord, int64_t axis, bool keepdims) {
  const ReduceOptions options{.keepdims = keepdims};
  if (ord && !ord->name().empty())
    throw_error("linalg::norm: order \"{}\" is not defined for vectors; use a number, or two axes", ord->name());
  const double p = ord ? ord->number() : 2;
  if (p == 2) return sqrt(sum(square(x), axis, options));
  if (p == kInfinity) return max(abs(x), axis, options);
  if (p == -kInfinity) return min(abs(x), axis, options);
  if (p == 0) return sum(astype(x != 0, x.dtype()), axis, options);
  if (p == 1) return sum(abs(x), axis, options);
  return pow(sum(pow(abs(x), p), axis, options), 1 / p);
}

// Of matrices in the last two dimensions.
Array matrix_norm(const Array& x, const std::optional<NormOrder>& ord) {
  if (!ord || ord->name() == "fro") return sqrt(sum(square(x), {-2, -1}));
  if (ord->name() == "nuc") return sum(svdvals(x), -1);
  if (ord->name().empty()) {
    const double p = ord->number();
    if (p == 2) return max(svdvals(x), -1);
    if (p == -2) return min(svdvals(x), -1);
    if (std::abs(p) == 1 || std::abs(p) == kInfinity) {
      const Array sums = sum(abs(x), std::abs(p) == 1 ? -2 : -1);
      return p > 0 ? max(sums, -1) : min(sums, -1);
    }
  }
  throw_error(
      "linalg::norm: order {} is not defined for matrices; use 1, 2, infinity, their negatives, \"fro\" or \"nuc\"",
      text_of(*ord));
}

Array identity_of(const Array& a) { return broadcast_to(eye(a.shape(-1), a.dtype()), a.shape()); }

// A number for each matrix, as a factor of matrices.
Array over_matrices(const Array& x) { return expand_dims(expand_dims(x, -1), -1); }

// The cheapest order of the products of a chain of matrices with extents dims[i] x dims[i + 1].
struct ChainOrder {
  size_t n;
  std::vector<double> cost;
  std::vector<size_t> split;

  explicit ChainOrder(const std::vector<int64_t>& dims) : n(dims.size() - 1), cost(n * n, 0), split(n * n, 0) {
    for (size_t length = 2; length <= n; ++length)
      for (size_t i = 0; i + length <= n; ++i) {
        const size_t j = i + length - 1;
        cost[i * n + j] = kInfinity;
        for (size_t k = i; k < j; ++k) {
          const double own =
              static_cast<double>(dims[i]) * static_cast<double>(dims[k + 1]) * static_cast<double>(dims[j + 1]);
          const double all = cost[i * n + k] + cost[(k + 1) * n + j] + own;
          if (all >= cost[i * n + j]) continue;
          cost[i * n + j] = all;
          split[i * n + j] = k;
        }
      }
  }
  Array product(const std::vector<Array>& arrays, size_t i, size_t j) const {
    if (i == j) return arrays[i];
    const size_t k = split[i * n + j];
    const Array left = product(arrays, i, k);
    return matmul(left, product(arrays, k + 1, j));
  }
};

// The approximant's numerator is V + U and its denominator V - U.
struct Pade {
  Array u, v;
};
Pade pade13(const Array& a) {
  constexpr double b[] = {64764752532480000.,
                          32382376266240000.,
                          7771770303897600.,
                          1187353796428800.,
                          129060195264000.,
                          10559470521600.,
                          670442572800.,
                          33522128640.,
                          1323241920.,
                          40840800.,
                          960960.,
                          16380.,
                          182.,
                          1.};
  const Array one = identity_of(a), a2 = matmul(a, a), a4 = matmul(a2, a2), a6 = matmul(a2, a4);
  const auto half = [&](int odd) {
    const double* c = b + odd;
    const Array high = matmul(a6, c[12] * a6 + c[10] * a4 + c[8] * a2);
    return high + c[6] * a6 + c[4] * a4 + c[2] * a2 + c[0] * one;
  };
  const Array even = half(0);
  return {matmul(a, half(1)), even};
}

}  // namespace

Array matrix_transpose(const Operand& x) {
  if (x.rank() < 2)
    throw_error("linalg::matrix_transpose: the operand is {}; it must have at least 2 dimensions", to_string(x.type()));
  return swapaxes(x, -1, -2);
}

Array vecdot(const Operand& a, const Operand& b, int64_t axis) { return sum(a * b, axis); }

Array outer(const Operand& a, const Operand& b) {
  if (a.rank() != 1 || b.rank() != 1)
    throw_error("linalg::outer: the operands are {} and {}; they must be vectors: use lockstep::outer to flatten them",
                to_string(a.type()), to_string(b.type()));
  return lockstep::outer(a, b);
}

Array matrix_power(const Operand& x, int64_t n) {
  const Array a = detail::square_matrices("linalg::matrix_power", x);
  if (n == 0) return identity_of(a);
  Array base = n < 0 ? inv(a) : a, result;
  for (uint64_t left = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);; base = matmul(base, base)) {
    if (left & 1) result = result.defined() ? matmul(result, base) : base;
    if ((left >>= 1) == 0) return result;
  }
}

// N. Higham, "The scaling and squaring method for the matrix exponential revisited" (2005).
Array expm(const Operand& x, int max_squarings) {
  const Array a = detail::square_matrices("linalg::expm", x);
  if (max_squarings < 0) throw_error("linalg::expm: max_squarings is {}; it must not be negative", max_squarings);
  if (a.size() == 0) return a;
  constexpr double kLargestNorm = 5.371920351148152;
  const Array size = stop_gradient(max(sum(abs(a), -2), -1));
  const Array exponent = ceil(log(size / kLargestNorm) * 1.4426950408889634);
  const Array squarings = maximum(0, exponent);  // NaN stays NaN
  const Array scale = over_matrices(pow(2, -minimum(squarings, max_squarings)));
  const auto [u, v] = pade13(a * scale);
  const Array one = identity_of(a);
  Array result = solve(v - u, v + u);
  for (int i = 0; i < max_squarings; ++i) {
    const Array active = over_matrices(squarings > i);
    // Matrices that are complete are not squared: they could overflow, and their gradient would be NaN.
    const Array part = where(active, result, one);
    result = where(active, matmul(part, part), result);
  }
  return where(over_matrices(squarings <= max_squarings), result, std::nan(""));
}

Array norm(const Operand& operand, std::optional<NormOrder> ord, NormOptions options) {
  const Array x = is_floating(operand.dtype()) ? Array(operand) : astype(operand, f32);
  std::vector<int64_t> axes = detail::axes_of("linalg::norm", options.axis.value_or(Axes()), x.shape());
  if (!options.axis && !ord) {
    const Array root = sqrt(sum(square(x)));
    return options.keepdims ? reshape(root, Shape(x.shape().size(), 1)) : root;
  }
  if (axes.size() == 1) return vector_norm(x, ord, axes[0], options.keepdims);
  if (axes.size() != 2)
    throw_error("linalg::norm: {} axes of {}; name one for vectors or two for matrices", axes.size(),
                to_string(x.type()));
  // The order of the axes says which are the rows.
  if (options.axis && options.axis->list) {
    axes = *options.axis->list;
    for (int64_t& axis : axes) axis = detail::axis_of("linalg::norm", axis, x.shape());
  }
  std::vector<int64_t> order = detail::other_axes(x.rank(), {std::min(axes[0], axes[1]), std::max(axes[0], axes[1])});
  order.insert(order.end(), axes.begin(), axes.end());
  const Array result = matrix_norm(transpose(x, order), ord);
  if (!options.keepdims) return result;
  Shape kept = x.shape();
  for (int64_t axis : axes) kept[static_cast<size_t>(axis)] = 1;
  return reshape(result, kept);
}

Array cond(const Operand& x, std::optional<NormOrder> p) {
  if (p && !(p->name().empty() && std::abs(p->number()) == 2)) {
    const Array a = detail::square_matrices("linalg::cond", x);
    const Array of_inverse = norm(inv(a), p, {.axis = Axes(-2, -1)});
    return norm(a, p, {.axis = Axes(-2, -1)}) * of_inverse;
  }
  const Array s = svdvals(x), first = at(s, 0, -1), last = at(s, -1, -1);
  return p && p->number() < 0 ? last / first : first / last;
}

Array multi_dot(const Operands& arrays) {
  if (arrays.size() < 2) throw_error("linalg::multi_dot: got {} arrays; pass at least two", arrays.size());
  std::vector<int64_t> dims;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Array& a = arrays[i];
    const bool end = i == 0 || i + 1 == arrays.size();
    if (a.rank() != 2 && !(end && a.rank() == 1))
      throw_error("linalg::multi_dot: array {} is {}; it must be a matrix, and only the first and last may be vectors",
                  i, to_string(a.type()));
    dims.push_back(i == 0 && a.rank() == 1 ? 1 : a.shape(0));
  }
  dims.push_back(arrays.back().rank() == 1 ? 1 : arrays.back().shape(1));
  return ChainOrder(dims).product(arrays, 0, arrays.size() - 1);
}

Array tensorinv(const Operand& a, int64_t ind) {
  if (ind <= 0 || ind >= a.rank())
    throw_error("linalg::tensorinv: ind is {} for {}; valid: 1 to {}", ind, to_string(a.type()), a.rank() - 1);
  const Shape first(a.shape().begin(), a.shape().begin() + ind), rest(a.shape().begin() + ind, a.shape().end());
  if (count(first) != count(rest))
    throw_error("linalg::tensorinv: {} with ind {} is a map from {} to {} elements; they must be equal",
                to_string(a.type()), ind, count(rest), count(first));
  Shape shape = rest;
  shape.insert(shape.end(), first.begin(), first.end());
  return reshape(inv(reshape(a, {count(first), count(rest)})), shape);
}

Array tensorsolve(const Operand& a, const Operand& b) {
  const Shape shape(a.shape().begin() + std::min(a.rank(), b.rank()), a.shape().end());
  if (count(shape) != b.size() || a.size() != b.size() * b.size())
    throw_error("linalg::tensorsolve: a is {} and b is {}; a must have the dimensions of b and others of equal size",
                to_string(a.type()), to_string(b.type()));
  return reshape(solve(reshape(a, {b.size(), b.size()}), reshape(b, {b.size()})), shape);
}

Array block_diag(const Operands& arrays) {
  if (arrays.empty()) return zeros({1, 0});
  std::vector<Array> blocks;
  int64_t columns = 0, before = 0;
  for (const Array& a : arrays) {
    if (a.rank() > 2)
      throw_error("linalg::block_diag: an array is {}; the arrays must be matrices, vectors or numbers",
                  to_string(a.type()));
    blocks.push_back(a.rank() == 2 ? a : reshape(a, {1, a.size()}));
    columns += blocks.back().shape(1);
  }
  for (Array& block : blocks) {
    const int64_t own = block.shape(1);
    block = pad(block, {{0, 0}, {before, columns - before - own}});
    before += own;
  }
  return concatenate(blocks, 0);
}

Array toeplitz(const Operand& c, const std::optional<Array>& r) {
  const Array column = ravel(c), row = r ? ravel(*r) : column;
  const int64_t m = column.size(), n = row.size();
  if (m == 0 || n == 0) return zeros({m, n}, column.dtype());
  // r[n-1], ..., r[1], c[0], ..., c[m-1]: element (i, j) is at i - j + n - 1. Written out m times and cut to rows that
  // are shifted by one, from the last row on.
  const Array line = concatenate({flip(slice(row, {1}, {n})), column});
  const int64_t length = m + n - 1;
  const Array shifted = reshape(slice(tile(line, {m + 1}), {0}, {m * (length + 1)}), {m, length + 1});
  return flip(slice(shifted, {0, 0}, {m, n}), 1);
}

}  // namespace lockstep::linalg
