// Programs of very many equations: the work of every pass grows with their number only, and no pass recurses along them.
#include <cmath>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "support/brief.h"

namespace lockstep {
namespace {

constexpr float kFactor = 1.0001f;

auto chain(int equations) {
  return [equations](Array x) {
    for (int i = 0; i < equations; ++i) x = i % 2 ? sin(x) : x * kFactor;
    return sum(x);
  };
}

// d/dx of the chain at 1, by its recurrence.
double derivative_of_chain(int equations) {
  double x = 1, d = 1;
  for (int i = 0; i < equations; ++i) {
    d *= i % 2 ? std::cos(x) : double{kFactor};
    x = i % 2 ? std::sin(x) : x * double{kFactor};
  }
  return d;
}

// With work of the square of the length, each of these would take minutes.
TEST(LongPrograms, CompileWithoutGradients) {
  const int n = brief(100000, 5000);
  const double y = jit(chain(n))(ones({3}, f64)).item<double>();
  EXPECT_TRUE(y > 0 && y < 3);
  EXPECT_EQ(vmap(chain(n / 8))(ones({2, 3})).shape(), Shape{2});
}

TEST(LongPrograms, CompileWithGradients) {
  const auto expect_derivative = [](const Array& got, double wanted) {
    for (const double d : got.to_vector<double>()) EXPECT_NEAR(d, wanted, 1e-9 * wanted);
  };
  const int n = brief(100000, 5000), shorter = n / 8;
  expect_derivative(jit(grad(chain(n)))(ones({3}, f64)), derivative_of_chain(n));
  expect_derivative(grad(chain(shorter))(ones({3}, f64)), derivative_of_chain(shorter));
  expect_derivative(jvp(chain(shorter), ones({3}, f64), ones({3}, f64)).second, 3 * derivative_of_chain(shorter));
}

// One value that is used by very many equations, and the sum of very many values.
TEST(LongPrograms, MayUseOneValueOften) {
  const int n = brief(20000, 2000);
  const auto f = [n](Array x) {
    const Array s = sin(x);
    Array total = zeros({});
    for (int i = 0; i < n; ++i) total = total + s * static_cast<float>(i % 3);
    return total;
  };
  const double each = n / 3 * 3.0 + (n % 3 > 1 ? 1 : 0);
  EXPECT_NEAR(jit(grad(f))(Array(0.f)).item<float>(), each, 1e-4 * each);
}

}  // namespace
}  // namespace lockstep
