// Products, linear algebra, Fourier transforms.
#include <limits>

#include "conformance/suite.h"

namespace lockstep::conformance {
namespace {

// Factors are unique up to signs, so their product is compared.
Array symmetric(const Array& a) { return (a + swapaxes(a, -1, -2)) / 2; }

Array rebuilt_from_qr(const Array& a) {
  const auto [q, r] = linalg::qr(a);
  return matmul(q, r);
}

Array rebuilt_from_eigh(const Array& a) {
  const auto [w, v] = linalg::eigh(symmetric(a));
  return matmul(v * expand_dims(w, -2), swapaxes(v, -1, -2));
}

Array rebuilt_from_svd(const Array& a) {
  const auto [u, s, vt] = linalg::svd(a, {.full_matrices = false});
  return matmul(u * expand_dims(s, -2), vt);
}

std::pair<Array, Array> signed_logarithm(const Array& a) {
  const auto [sign, logarithm] = linalg::slogdet(a);
  return {sign, logarithm};
}

std::optional<linalg::NormOrder> order_of(const Json& attrs) {
  const Json& order = attrs.at("ord");
  if (order.is_null()) return {};
  if (order.is_number()) return linalg::NormOrder(order.get<double>());
  const auto name = order.get<std::string>();
  if (name == "inf") return linalg::NormOrder(std::numeric_limits<double>::infinity());
  if (name == "-inf") return linalg::NormOrder(-std::numeric_limits<double>::infinity());
  return linalg::NormOrder(name == "fro" ? "fro" : "nuc");
}

fft::Norm norm_of(const std::string& name) {
  return name == "ortho" ? fft::Norm::ortho : name == "forward" ? fft::Norm::forward : fft::Norm::backward;
}

std::pair<Array, Array> absolute_qr(const Array& a) {
  const auto [q, r] = linalg::qr(a);
  return {abs(q), abs(r)};
}

}  // namespace

// clang-format off
Functions linear_functions() {
  return {
      FUNCTION("jnp.dot", dot(x, y)),
      FUNCTION("jnp.matmul", matmul(x, y)),
      FUNCTION("jnp.inner", inner(x, y)),
      FUNCTION("jnp.vdot", vdot(x, y)),
      FUNCTION("jnp.tensordot", tensordot(x, y, attrs.at("axes").get<int64_t>())),
      FUNCTION("jnp.einsum", einsum(text, x, y)),
      FUNCTION("jnp.einsum one", einsum(text, x)),
      FUNCTION("jnp.linalg.cholesky", linalg::cholesky(symmetric(x))),
      FUNCTION("jnp.linalg.inv", linalg::inv(x)),
      FUNCTION("jnp.linalg.det", linalg::det(x)),
      FUNCTION("jnp.linalg.slogdet", signed_logarithm(x)),
      FUNCTION("jnp.linalg.solve", linalg::solve(x, y)),
      FUNCTION("jnp.linalg.eigvalsh", linalg::eigvalsh(symmetric(x))),
      FUNCTION("jnp.linalg.svdvals", linalg::svdvals(x)),
      FUNCTION("jnp.linalg.pinv", linalg::pinv(x)),
      FUNCTION("jax.scipy.linalg.expm", linalg::expm(x)),
      FUNCTION("|qr|", absolute_qr(x)),
      FUNCTION("qr rebuilds", rebuilt_from_qr(x)),
      FUNCTION("eigh rebuilds", rebuilt_from_eigh(x)),
      FUNCTION("svd rebuilds", rebuilt_from_svd(x)),
      FUNCTION("jnp.linalg.matrix_power", linalg::matrix_power(x, n)),
      FUNCTION("jax.scipy.linalg.solve_triangular", linalg::solve_triangular(x, y, {.trans = static_cast<int>(trans), .lower = lower, .unit_diagonal = unit_diagonal})),
      FUNCTION("jax.scipy.linalg.cho_solve", linalg::cho_solve({linalg::cholesky(symmetric(x)), true}, y)),
      FUNCTION("jax.scipy.linalg.lu_solve", linalg::lu_solve(linalg::lu_factor(x), y)),
      FUNCTION("jnp.linalg.norm", linalg::norm(x, order_of(attrs), {.axis = Axes(-2, -1)})),
      FUNCTION("jnp.linalg.norm vector", linalg::norm(x, order_of(attrs), {.axis = Axes(-1)})),
      FUNCTION("jnp.linalg.lstsq", linalg::lstsq(x, y).x),
      FUNCTION("jnp.linalg.matrix_rank", linalg::matrix_rank(x)),
      FUNCTION("jnp.linalg.cond", linalg::cond(x)),
      FUNCTION("jnp.linalg.multi_dot", linalg::multi_dot(xs)),
      FUNCTION("jax.scipy.linalg.block_diag", linalg::block_diag(xs)),
      FUNCTION("jnp.fft.fft", fft::fft(x, {}, -1, norm_of(norm))),
      FUNCTION("jnp.fft.ifft", fft::ifft(x, {}, -1, norm_of(norm))),
      FUNCTION("jnp.fft.fft axis", fft::fft(x, {}, axis)),
      FUNCTION("jnp.fft.ifft axis", fft::ifft(x, {}, axis)),
      FUNCTION("jnp.fft.fft n", fft::fft(x, n)),
      FUNCTION("jnp.fft.ifft n", fft::ifft(x, n)),
      FUNCTION("jnp.fft.rfft", fft::rfft(x)),
      FUNCTION("|rfft|^2", square(abs(fft::rfft(x)))),
      FUNCTION("jnp.fft.irfft", fft::irfft(x, n)),
      FUNCTION("jnp.fft.fft2", fft::fft2(x)),
      FUNCTION("jnp.fft.ifft2", fft::ifft2(x)),
      FUNCTION("jnp.fft.fftn", fft::fftn(x)),
      FUNCTION("jnp.fft.ifftn", fft::ifftn(x)),
      FUNCTION("jnp.fft.rfft2", fft::rfft2(x)),
      FUNCTION("jnp.fft.rfftn", fft::rfftn(x)),
      FUNCTION("jnp.fft.irfft2", fft::irfft2(x)),
      FUNCTION("jnp.fft.irfftn", fft::irfftn(x)),
      FUNCTION("jnp.fft.fftshift", fft::fftshift(x)),
      FUNCTION("jnp.fft.ifftshift", fft::ifftshift(x)),
      FUNCTION("jnp.fft.fftfreq", fft::fftfreq(n, spacing)),
      FUNCTION("jnp.fft.rfftfreq", fft::rfftfreq(n, spacing)),
  };
}
// clang-format on

}  // namespace lockstep::conformance
