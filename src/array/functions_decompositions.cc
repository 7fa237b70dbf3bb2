#include <fmt/format.h>

#include "array/apply.h"
#include "array/matrices.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "ops/elementwise.h"
#include "ops/linalg.h"
#include "ops/matrix_values.h"

namespace lockstep {
namespace detail {

Array real_array(const char* what, const Array& x) {
  const DType dtype = x.dtype();
  if (is_floating(dtype) && dtype != f32 && dtype != f64)
    throw_error("{}: the operand is {}; linear algebra needs f32 or f64: use astype(x, f32)", what,
                to_string(x.type()));
  return is_floating(dtype) ? x : astype(x, f32);
}

Array real_matrices(const char* what, const Array& x) {
  if (x.rank() < 2)
    throw_error("{}: the operand is {}; it must have at least 2 dimensions, the rows and columns of matrices", what,
                to_string(x.type()));
  return real_array(what, x);
}

Array square_matrices(const char* what, const Array& x) {
  const Array a = real_matrices(what, x);
  if (a.shape(-1) != a.shape(-2))
    throw_error("{}: the operand is {}, with matrices of {} x {}; they must be square", what, to_string(x.type()),
                a.shape(-2), a.shape(-1));
  return a;
}

void promote_pair(const char* what, Array& a, Array& b) {
  const Array both[] = {a, b};
  const DType dtype = floating_of(common_dtype(both));
  a = real_array(what, astype(a, dtype));
  b = real_array(what, astype(b, dtype));
}

void match_batches(const char* what, Array& a, Array& b) {
  promote_pair(what, a, b);
  const MatrixDims of_a(a.shape()), of_b(b.shape());
  if (of_a.batch == of_b.batch) return;
  const Shape batches[] = {of_a.batch, of_b.batch};
  const Shape batch = broadcast_shape(what, batches);
  const auto fit = [&](const Array& x, MatrixDims dims) {
    dims.batch = batch;
    return broadcast_to(x, dims.with(dims.rows, dims.columns));
  };
  a = fit(a, of_a);
  b = fit(b, of_b);
}

std::vector<Array> apply_values(const char* what, std::span<const Array> args, ValuesFunction f) {
  return apply(what, args, {}, [&](Builder&, const Values& v) { return f(v); });
}

}  // namespace detail

namespace linalg {
namespace {

std::vector<Array> on_matrices(const char* what, const Array& a, detail::ValuesFunction f) {
  return detail::apply_values(what, std::span<const Array>(&a, 1), f);
}

Value symmetric_part(Value x) {
  const Value turned = matrix_transposed(x);
  return 0.5 * (x + turned);
}

// The matrix whose lower triangle eigh() reads.
Value with_lower_triangle(Value x, EighOptions options) {
  if (options.symmetrize_input) return symmetric_part(x);
  return options.uplo == 'U' ? matrix_transposed(x) : x;
}

void check_uplo(const char* what, EighOptions options) {
  if (options.uplo != 'L' && options.uplo != 'U')
    throw_error("{}: uplo is '{}'; it must be 'L' or 'U'", what, options.uplo);
}

}  // namespace

Array cholesky(const Operand& x, CholeskyOptions options) {
  const Array a = detail::square_matrices("linalg::cholesky", x);
  return on_matrices("linalg::cholesky", a, [&](const Values& v) -> Values {
    const Value l = lockstep::cholesky(options.symmetrize_input ? symmetric_part(v[0]) : v[0]);
    return {options.upper ? matrix_transposed(l) : l};
  })[0];
}

CholeskyFactor cho_factor(const Operand& a, bool lower) {
  return {cholesky(detail::square_matrices("linalg::cho_factor", a), {.upper = !lower}), lower};
}

Array triangular_solve(const Operand& x, const Operand& y, TriangularSolveOptions options) {
  constexpr const char* what = "linalg::triangular_solve";
  Array a = detail::square_matrices(what, x), b = detail::real_matrices(what, y);
  detail::promote_pair(what, a, b);
  const Array operands[] = {a, b};
  return detail::apply_values(what, operands, [&](const Values& v) -> Values {
    return {lockstep::triangular_solve(v[0], v[1],
                                       {options.left_side, options.lower, options.transpose_a, options.unit_diagonal})};
  })[0];
}

Lu lu(const Operand& x) {
  const auto parts = on_matrices("linalg::lu", detail::real_matrices("linalg::lu", x),
                                 [](const Values& v) { return lockstep::lu(v[0]); });
  return {parts[0], parts[1], parts[2]};
}

Lu lu_factor(const Operand& x) { return lu(detail::square_matrices("linalg::lu_factor", x)); }

Qr qr(const Operand& x, std::string_view mode) {
  if (mode != "reduced" && mode != "complete" && mode != "r")
    throw_error("linalg::qr: mode is \"{}\"; it must be \"reduced\", \"complete\" or \"r\"", mode);
  const auto parts = on_matrices("linalg::qr", detail::real_matrices("linalg::qr", x),
                                 [&](const Values& v) { return lockstep::qr(v[0], mode == "complete"); });
  return {mode == "r" ? Array() : parts[0], parts[1]};
}

Eigh eigh(const Operand& x, EighOptions options) {
  check_uplo("linalg::eigh", options);
  const auto parts = on_matrices("linalg::eigh", detail::square_matrices("linalg::eigh", x),
                                 [&](const Values& v) { return lockstep::eigh(with_lower_triangle(v[0], options)); });
  return {parts[0], parts[1]};
}

Array eigvalsh(const Operand& x, EighOptions options) {
  check_uplo("linalg::eigvalsh", options);
  const Array a = detail::square_matrices("linalg::eigvalsh", x);
  return on_matrices("linalg::eigvalsh", a, [&](const Values& v) -> Values {
    return {lockstep::eigh(with_lower_triangle(v[0], options))[0]};
  })[0];
}

Svd svd(const Operand& x, SvdOptions options) {
  const auto parts = on_matrices("linalg::svd", detail::real_matrices("linalg::svd", x),
                                 [&](const Values& v) { return lockstep::svd(v[0], options.full_matrices, true); });
  return {parts[0], parts[1], parts[2]};
}

Array svdvals(const Operand& x) {
  return on_matrices("linalg::svdvals", detail::real_matrices("linalg::svdvals", x),
                     [](const Values& v) { return lockstep::svd(v[0], false, false); })[0];
}

}  // namespace linalg
}  // namespace lockstep
