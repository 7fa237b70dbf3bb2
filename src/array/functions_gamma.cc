// Distributions drawn by rejection: gamma (Marsaglia and Tsang, 2000) and what follows from it, poisson (Knuth;
// Hoermann, 1993), binomial (geometric waiting times; Hoermann's BTRS). Rounds and keys are those of JAX.
#include <cmath>
#include <numbers>

#include "array/bounded_loop.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/distributions.h"
#include "lockstep/indexing.h"
#include "lockstep/math.h"
#include "lockstep/numeric.h"
#include "lockstep/special.h"
#include "lockstep/vmap.h"

namespace lockstep::random {
namespace {

using detail::Arrays;

// Even the least probable acceptance, 3 of 4, fails so often with probability 3e-39.
constexpr int64_t kRounds = 64;

Array split_each(const Array& keys, int64_t n) {
  return vmap([n](const Array& key) { return random::split(key, n); })(keys);
}
Array key_of_each(const Array& keys, int64_t i) { return at(keys, i, 1); }
Array normal_of_each(const Array& keys, DType dtype) {
  return vmap([dtype](const Array& key) { return normal(key, {}, dtype); })(keys);
}
Array uniform_of_each(const Array& keys, DType dtype) {
  return vmap([dtype](const Array& key) { return uniform(key, {}, 0, 1, dtype); })(keys);
}

// Numbers x and 1 + c x > 0, x normal.
Arrays positive_candidates(const Array& keys, const Array& c) {
  return detail::bounded_while(
      kRounds, [](const Arrays& s) { return s[2] <= 0; },
      [&](const Arrays& s) {
        const Array open = s[2] <= 0, next = split_each(s[0], 2);
        const Array x = where(open, normal_of_each(key_of_each(next, 1), c.dtype()), s[1]);
        return Arrays{where(expand_dims(open, 1), key_of_each(next, 0), s[0]), x, 1 + x * c};
      },
      {keys, zeros_like(c), full_like(c, -1)});
}

// (1 + c x)^3 of the accepted x, for each key.
Array accepted_cubes(const Array& keys, const Array& d, const Array& c) {
  const auto refused = [&d](const Arrays& s) {
    const Array &x = s[1], &v = s[2], &u = s[3];  // x is squared
    return (u >= 1 - 0.0331 * (x * x)) & (log(u) >= x * 0.5 + d * (1 - v + log(v)));
  };
  return detail::bounded_while(kRounds, refused,
                               [&](const Arrays& s) {
                                 const Array open = refused(s), next = split_each(s[0], 3);
                                 const Arrays candidate = positive_candidates(key_of_each(next, 1), c);
                                 const Array &x = candidate[1], &v = candidate[2];
                                 return Arrays{where(expand_dims(open, 1), key_of_each(next, 0), s[0]),
                                               where(open, x * x, s[1]), where(open, v * v * v, s[2]),
                                               where(open, uniform_of_each(key_of_each(next, 2), c.dtype()), s[3])};
                               },
                               {keys, zeros_like(c), ones_like(c), full_like(c, 2)})[2];
}

Array parameter_of(const char* what, const Array& x, const Shape& shape, DType dtype) {
  if (!is_floating(dtype)) throw_error("random::{}: dtype {} is not floating; use a floating type", what, name(dtype));
  return stop_gradient(broadcast_to(astype(x, dtype), shape));
}

Array gamma_numbers(const char* what, const Array& key, const Array& a, const Shape& shape, DType dtype,
                    bool logarithm) {
  const Array alpha = ravel(parameter_of(what, a, shape, dtype));
  if (alpha.size() == 0) return zeros(shape, dtype);
  const Array pairs = split_each(random::split(key, alpha.size()), 2);
  const Array large = alpha >= 1, subkeys = key_of_each(pairs, 1);
  const Array d = where(large, alpha, alpha + 1) - 1.0 / 3, c = (1.0 / 3) / sqrt(d);
  const Array v = accepted_cubes(key_of_each(pairs, 0), d, c), u = uniform_of_each(subkeys, dtype);
  // A number for alpha + 1 times u^(1 / alpha) is one for alpha.
  if (!logarithm) return reshape(d * v * where(large, 1, pow(1 - u, 1 / alpha)), shape);
  const Array log_u = log1p(-u);
  return reshape(log(d) + log(v) + where(large | (log_u == 0), 0, log_u * (1 / alpha)), shape);
}

Array poisson_by_products(const Array& key, const Array& lam) {
  // Fewer than 10 events are expected: more than 100 never happen.
  const auto running = [&](const Arrays& s) { return s[2] > -lam; };
  const Arrays end = detail::bounded_while(
      128, running,
      [&](const Arrays& s) {
        const auto [rest, own] = split<2>(s[1]);
        return Arrays{where(running(s), s[0] + 1, s[0]), rest, s[2] + log(uniform(own, lam.shape()))};
      },
      {zeros_like(lam), key, zeros_like(lam)});
  return end[0] - 1;
}

Array poisson_by_rejection(const Array& key, const Array& lam) {
  const Array b = 0.931 + 2.53 * sqrt(lam), a = -0.059 + 0.02483 * b;
  const Array inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2);
  return detail::bounded_while(
      kRounds, [](const Arrays& s) { return ~s[1]; },
      [&](const Arrays& s) {
        const auto [rest, key_u, key_v] = split<3>(s[2]);
        const Array u = uniform(key_u, lam.shape()) - 0.5, v = uniform(key_v, lam.shape()), from_edge = 0.5 - abs(u);
        const Array k = floor((2 * a / from_edge + b) * u + lam + 0.43);
        const Array left = log(v * inverse_alpha / (a / (from_edge * from_edge) + b));
        const Array right = -lam + k * log(lam) - special::gammaln(maximum(k, 0) + 1);
        const Array surely = (from_edge >= 0.07) & (v <= v_r),
                    never = (k < 0) | ((from_edge < 0.013) & (v > from_edge));
        const Array accepted = surely | (~never & (left <= right));
        return Arrays{where(accepted, k, s[0]), s[1] | accepted, rest};
      },
      {full_like(lam, -1), zeros_like(lam, boolean), key})[0];
}

Array binomial_by_waiting(const Array& key, const Array& n, const Array& p) {
  const Array scale = log1p(-p);
  const auto running = [&](const Arrays& s) { return s[1] <= n; };
  const Arrays end = detail::bounded_while(128, running,
                                           [&](const Arrays& s) {
                                             const auto [own, rest] = split<2>(s[2]);
                                             const Array wait =
                                                 ceil(log(uniform(own, p.shape(), 0, 1, p.dtype())) / scale);
                                             return Arrays{where(running(s), s[0] + 1, s[0]), s[1] + wait, rest};
                                           },
                                           {zeros_like(p), zeros_like(p), key});
  return end[0] - 1;
}

// The error of Stirling's formula for log(k!).
Array stirling_rest(const Array& k) {
  const Array table =
      array({0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
             0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287},
            k.dtype());
  const Array small = k <= 9, square_k = (maximum(k, 0) + 1) * (maximum(k, 0) + 1);
  const Array series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square_k) / square_k) / (maximum(k, 0) + 1);
  return where(small, take(table, astype(clip(k, 0, 9), i32)), series);
}

Array binomial_by_rejection(const Array& key, const Array& n, const Array& p) {
  const Array sd = sqrt(n * p * (1 - p)), b = 1.15 + 2.53 * sd, a = -0.0873 + 0.0248 * b + 0.01 * p;
  const Array c = n * p + 0.5, v_r = 0.92 - 4.2 / b, r = p / (1 - p), alpha = (2.83 + 5.1 / b) * sd;
  const Array m = floor((n + 1) * p);
  return detail::bounded_while(
      kRounds, [](const Arrays& s) { return ~s[1]; },
      [&](const Arrays& s) {
        const auto [rest, key_u, key_v] = split<3>(s[2]);
        const Array u = uniform(key_u, p.shape(), 0, 1, p.dtype()) - 0.5,
                    v = uniform(key_v, p.shape(), 0, 1, p.dtype());
        const Array us = 0.5 - abs(u), k = floor((2 * a / us + b) * u + c);
        const Array left = log(v * alpha / (a / (us * us) + b));
        const Array right = (m + 0.5) * log((m + 1) / (r * (n - m + 1))) + (n + 1) * log((n - m + 1) / (n - k + 1)) +
                            (k + 0.5) * log(r * (n - k + 1) / (k + 1)) + stirling_rest(m) + stirling_rest(n - m) -
                            stirling_rest(k) - stirling_rest(n - k);
        const Array accepted = ((us >= 0.07) & (v <= v_r)) | (~((k < 0) | (k > n)) & (left <= right));
        return Arrays{where(accepted, k, s[0]), s[1] | accepted, rest};
      },
      {full_like(p, -1), zeros_like(p, boolean), key})[0];
}

}  // namespace

Array gamma(const Operand& key, const Operand& a, const Shape& shape, DType dtype) {
  return gamma_numbers("gamma", key, a, shape, dtype, false);
}
Array loggamma(const Operand& key, const Operand& a, const Shape& shape, DType dtype) {
  return gamma_numbers("loggamma", key, a, shape, dtype, true);
}

Array beta(const Operand& key, const Operand& a, const Operand& b, const Shape& shape, DType dtype) {
  const auto [key_a, key_b] = split<2>(key);
  const Array log_a = loggamma(key_a, a, shape, dtype), log_b = loggamma(key_b, b, shape, dtype);
  const Array most = maximum(log_a, log_b), scaled = exp(log_a - most);
  return scaled / (scaled + exp(log_b - most));
}

Array dirichlet(const Operand& key, const Operand& alpha, const Shape& shape, DType dtype) {
  if (alpha.rank() < 1) throw_error("random::dirichlet: alpha is {}; pass [..., k]", to_string(alpha.type()));
  Shape points = shape.empty() ? Shape(alpha.shape().begin(), alpha.shape().end() - 1) : shape;
  points.push_back(alpha.shape(-1));
  return softmax(loggamma(key, alpha, points, dtype), -1);
}

Array chisquare(const Operand& key, const Operand& df, const Shape& shape, DType dtype) {
  return exp(loggamma(key, astype(df, dtype) / 2, shape, dtype)) * 2;
}

Array f(const Operand& key, const Operand& dfnum, const Operand& dfden, const Shape& shape, DType dtype) {
  const auto [key_den, key_num] = split<2>(key);
  const Array num = chisquare(key_num, dfnum, shape, dtype) / parameter_of("f", dfnum, shape, dtype);
  return num / (chisquare(key_den, dfden, shape, dtype) / parameter_of("f", dfden, shape, dtype));
}

Array t(const Operand& key, const Operand& df, const Shape& shape, DType dtype) {
  const auto [key_n, key_g] = split<2>(key);
  const Array half = parameter_of("t", df, shape, dtype) / 2;
  return normal(key_n, shape, dtype) * sqrt(half / gamma(key_g, half, shape, dtype));
}

Array generalized_normal(const Operand& key, double p, const Shape& shape, DType dtype) {
  if (!(p > 0)) throw_error("random::generalized_normal: p is {}; it must be positive", p);
  const auto [key_g, key_r] = split<2>(key);
  return rademacher(key_r, shape, dtype) * pow(gamma(key_g, 1 / p, shape, dtype), 1 / p);
}

Array ball(const Operand& key, int64_t d, double p, const Shape& shape, DType dtype) {
  if (d < 1) throw_error("random::ball: {} dimensions; the number must be positive", d);
  const auto [key_g, key_e] = split<2>(key);
  Shape points = shape;
  points.push_back(d);
  const Array g = generalized_normal(key_g, p, points, dtype);
  const Array size = sum(pow(abs(g), p), -1) + exponential(key_e, shape, dtype);
  return g / expand_dims(pow(size, 1 / p), -1);
}

Array poisson(const Operand& key, const Operand& lam, const Shape& shape, DType dtype) {
  if (!is_integer(dtype)) throw_error("random::poisson: dtype {} is not an integer; use an integer type", name(dtype));
  const Array rate = parameter_of("poisson", lam, shape, f32);
  const Array small = isnan(rate) | (rate < 10);
  const Array few = poisson_by_products(key, where(small, rate, 0));
  const Array many = poisson_by_rejection(key, where(small, 1e5, rate));
  return where(rate == 0, 0, astype(where(small, few, many), dtype));
}

Array binomial(const Operand& key, const Operand& n, const Operand& p, const Shape& shape, DType dtype) {
  const DType wide = detail::floating_of(p.dtype());
  const Array trials = parameter_of("binomial", n, shape, wide), chance = parameter_of("binomial", p, shape, wide);
  const Array below_half = chance < 0.5, lesser = where(below_half, chance, 1 - chance);
  const Array no_count = isnan(trials) | (trials < 0), no_chance = isnan(lesser) | (lesser < 0);
  const Array q = where(no_chance, 0.01, lesser), whole = floor(trials);
  const Array few = no_count | (trials * q <= 10);
  const Array by_waiting = binomial_by_waiting(key, where(few, whole, 0), q);
  const Array by_rejection = binomial_by_rejection(key, where(few, 1e4, whole), where(few, 0.5, q));
  const Array invalid = no_count | no_chance, endless = isinf(trials) & ~invalid;
  const Array drawn = where(invalid, NAN, where(endless, HUGE_VAL, where(few, by_waiting, by_rejection)));
  return astype(where(below_half | invalid | endless, drawn, whole - drawn), dtype);
}

Array multinomial(const Operand& key, const Operand& n, const Operand& p, DType dtype) {
  if (p.rank() < 1) throw_error("random::multinomial: the probabilities are {}; pass [..., k]", to_string(p.type()));
  const DType wide = detail::floating_of(p.dtype());
  const Array chances = moveaxis(astype(p, wide), -1, 0), left = cumsum(chances, 0, true);
  const Array ratios = clip(chances / where(left == 0, 1, left), 0, 1);
  const Shape shapes[] = {n.shape(), Shape(p.shape().begin(), p.shape().end() - 1)};
  const Shape batch = detail::broadcast_shape("random::multinomial", shapes);
  const auto draw = [&](const Array& remaining, const std::pair<Array, Array>& x) {
    const Array drawn = binomial(x.second, remaining, x.first, batch, wide);
    return std::pair{remaining - drawn, drawn};
  };
  const Array keys = random::split(key, p.shape(-1));
  const Array counts = scan(draw, broadcast_to(astype(n, wide), batch), std::pair{ratios, keys}).second;
  return astype(moveaxis(counts, 0, -1), dtype);
}

}  // namespace lockstep::random
