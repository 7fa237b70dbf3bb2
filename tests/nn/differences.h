// expect_gradient(f, x): compares the gradient of f, a function from f64 arrays to an f64 scalar, with central
// differences.
#pragma once

#include <gtest/gtest.h>

#include "lockstep/lockstep.h"

namespace lockstep {

template <class F>
void expect_gradient(const F& f, const Array& x) {
  ASSERT_EQ(x.dtype(), f64);
  const auto compiled = jit([&](Array at) { return f(at); });
  const std::vector<double> exact = grad(f)(x).template to_vector<double>(), start = x.to_vector<double>();
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < start.size(); ++i) {
    const auto value_at = [&](double offset) {
      std::vector<double> moved = start;
      moved[i] += offset;
      return compiled(Array::from(moved, x.shape())).template item<double>();
    };
    EXPECT_NEAR(exact[i], (value_at(kStep) - value_at(-kStep)) / (2 * kStep), 1e-8) << "element " << i;
  }
}

}  // namespace lockstep
