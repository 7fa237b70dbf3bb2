// Complex arrays: values, gradients in JAX's convention, and errors. Expected values by hand or by std::complex.
#include "lockstep/complex.h"

#include <complex>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

using C = std::complex<double>;

Array values_of(const std::vector<C>& values, DType dtype = c128) {
  return astype(Array::from(values, {std::ssize(values)}), dtype);
}

void expect_complex(const Array& got, const std::vector<C>& wanted, double tolerance = 1e-12) {
  ASSERT_TRUE(is_complex(got.dtype())) << got;
  const std::vector<C> numbers = got.to_vector<C>();
  ASSERT_EQ(numbers.size(), wanted.size()) << got;
  for (size_t i = 0; i < numbers.size(); ++i)
    EXPECT_LE(std::abs(numbers[i] - wanted[i]), tolerance * std::max(1.0, std::abs(wanted[i])))
        << numbers[i] << " instead of " << wanted[i];
}

const std::vector<C> kA = {{1, 2}, {-0.5, 0.25}, {0, -3}}, kB = {{2, -1}, {1.5, 1}, {-1, 0.5}};

TEST(Complex, PartsAndTextAndNumbers) {
  const Array z = complex(array({1, 2}), array({3.f, -4.f}));
  EXPECT_TEXT(z, "c64[2] [1+3i, 2-4i]");
  EXPECT_TEXT(real(z), "f32[2] [1, 2]");
  EXPECT_TEXT(imag(z), "f32[2] [3, -4]");
  EXPECT_TEXT(conj(z), "c64[2] [1-3i, 2+4i]");
  EXPECT_TEXT(imag(array({1, 2})), "i32[2] [0, 0]");
  EXPECT_TEXT(complex(ones({1}, f64), 2), "c128[1] [1+2i]");
  EXPECT_TEXT(array({C(1, 2), C(0, 1)}), "c64[2] [1+2i, 0+1i]");
  EXPECT_TEXT(abs(array({C(3, 4)})), "f32[1] [5]");
  EXPECT_TEXT(isreal(array({C(3, 4), C(1, 0)})), "bool[2] [false, true]");
  EXPECT_TEXT(iscomplex(array({C(3, 4), C(1, 0)})), "bool[2] [true, false]");
  EXPECT_NEAR(angle(array({C(0, -2)})).item<double>(), -1.5707963, 1e-6);
  EXPECT_EQ(z.to_vector<C>()[1], C(2, -4));
  EXPECT_EQ(Array(C(1, 2)).item<C>(), C(1, 2));
  EXPECT_EQ(Array(C(1, 2)).dtype(), c64);
}

TEST(Complex, NumbersTakeTheTypeOfTheArray) {
  const C i(0, 1);
  EXPECT_EQ((ones({1}, f32) * i).dtype(), c64);
  EXPECT_EQ((ones({1}, f64) * i).dtype(), c128);
  EXPECT_EQ((ones({1}, i64) * i).dtype(), c64);
  EXPECT_EQ((ones({1}, c128) * 0.5).dtype(), c128);
  EXPECT_EQ((ones({1}, c64) + 1).dtype(), c64);
  EXPECT_EQ((ones({1}, c64) * ones({1}, f64)).dtype(), c128);
  EXPECT_EQ((ones({1}, c128) * C(0.1, 0.1)).item<C>(), C(0.1, 0.1));
}

TEST(Complex, ArithmeticAndFunctions) {
  const Array a = values_of(kA), b = values_of(kB);
  const auto both = [&](C (*f)(C, C)) {
    std::vector<C> out;
    for (size_t i = 0; i < kA.size(); ++i) out.push_back(f(kA[i], kB[i]));
    return out;
  };
  const auto each = [&](C (*f)(C)) {
    std::vector<C> out;
    for (const C& x : kA) out.push_back(f(x));
    return out;
  };
  expect_complex(a + b, both([](C x, C y) { return x + y; }));
  expect_complex(a - b, both([](C x, C y) { return x - y; }));
  expect_complex(a * b, both([](C x, C y) { return x * y; }));
  expect_complex(a / b, both([](C x, C y) { return x / y; }));
  expect_complex(pow(a, b), both([](C x, C y) { return std::pow(x, y); }));
  expect_complex(exp(a), each([](C x) { return std::exp(x); }));
  expect_complex(log(a), each([](C x) { return std::log(x); }));
  expect_complex(sqrt(a), each([](C x) { return std::sqrt(x); }));
  expect_complex(sin(a), each([](C x) { return std::sin(x); }));
  expect_complex(cos(a), each([](C x) { return std::cos(x); }));
  expect_complex(tanh(a), each([](C x) { return std::tanh(x); }));
  expect_complex(square(-a), each([](C x) { return x * x; }));
  EXPECT_TEXT(a == a, "bool[3] [true, true, true]");
  EXPECT_TEXT(a != conj(a), "bool[3] [true, true, true]");
  expect_complex(exp(astype(a, c64)), each([](C x) { return std::exp(x); }), 1e-6);
  expect_complex(pow(astype(a, c64), astype(b, c64)), both([](C x, C y) { return std::pow(x, y); }), 1e-6);
}

TEST(Complex, LargeNumbersDoNotOverflow) {
  const Array z = array({C(1e30, 1e30), C(1e-30, 1e-30)});
  EXPECT_NEAR(abs(z).to_vector<double>()[0] / 1.4142135623e30, 1, 1e-6);
  EXPECT_NEAR(abs(z).to_vector<double>()[1] / 1.4142135623e-30, 1, 1e-6);
  expect_complex(z / z, {1, 1}, 1e-6);
  expect_complex(sqrt(array({C(-4, 0), C(-4, -0.0), C(0, 0)}, c128)), {{0, 2}, {0, -2}, 0});
  expect_complex(tanh(values_of({{400, 1}})), {1});
}

TEST(Complex, ReductionsAndProducts) {
  const Array a = values_of(kA), b = values_of(kB);
  expect_complex(sum(a), {kA[0] + kA[1] + kA[2]});
  expect_complex(mean(a), {(kA[0] + kA[1] + kA[2]) / 3.0});
  expect_complex(prod(a), {kA[0] * kA[1] * kA[2]});
  expect_complex(cumsum(a, 0), {kA[0], kA[0] + kA[1], kA[0] + kA[1] + kA[2]});
  EXPECT_NEAR(var(values_of({{1, 1}, {-1, -1}})).item<double>(), 2, 1e-12);
  expect_complex(dot(a, b), {kA[0] * kB[0] + kA[1] * kB[1] + kA[2] * kB[2]});
  const Array m = reshape(values_of({{1, 1}, 2, {0, 3}, {1, -1}}), {2, 2});
  expect_complex(matmul(m, m), {C(1, 1) * C(1, 1) + 2.0 * C(0, 3), C(1, 1) * 2.0 + 2.0 * C(1, -1),
                                C(0, 3) * C(1, 1) + C(1, -1) * C(0, 3), C(0, 3) * 2.0 + C(1, -1) * C(1, -1)});
}

TEST(Complex, ArraysAreMoved) {
  const Array a = values_of(kA, c64), m = reshape(concatenate({a, conj(a)}), {2, 3});
  EXPECT_TEXT(transpose(m), "c64[3,2] [[1+2i, 1-2i], [-0.5+0.25i, -0.5-0.25i], [0-3i, 0+3i]]");
  EXPECT_TEXT(take(a, array({2, 0})), "c64[2] [0-3i, 1+2i]");
  EXPECT_TEXT(slice(a, {1}, {3}), "c64[2] [-0.5+0.25i, 0-3i]");
  EXPECT_TEXT(where(array({true, false, true}), a, C(0, 9)), "c64[3] [1+2i, 0+9i, 0-3i]");
  EXPECT_TEXT(scatter_add(zeros({2}, c64), array({1, 1, 0}), a), "c64[2] [0-3i, 0.5+2.25i]");
  EXPECT_TEXT(flip(a, 0), "c64[3] [0-3i, -0.5+0.25i, 1+2i]");
  EXPECT_TEXT(astype(a, f32), "f32[3] [1, -0.5, 0]");
  EXPECT_TEXT(astype(astype(a, c128), boolean), "bool[3] [true, true, true]");
  EXPECT_TEXT(astype(array({1, 2}), c128), "c128[2] [1+0i, 2+0i]");
  EXPECT_TEXT(isfinite(a / C(0, 0)), "bool[3] [false, false, false]");
}

// In JAX's convention: dL/dx - i dL/dy.
TEST(Complex, GradientsAreConjugate) {
  const Array z = values_of({{1, 2}, {-3, 0.5}});
  expect_complex(grad([](const Array& x) { return sum(square(abs(x))); })(z), {{2, -4}, {-6, -1}});
  expect_complex(grad([](const Array& x) { return sum(real(x * x)); })(z), {{2, 4}, {-6, 1}});
  expect_complex(grad([](const Array& x) { return sum(imag(x)); })(z), {{0, -1}, {0, -1}});
  expect_complex(grad([](const Array& x) { return real(sum(exp(x))); })(z), {std::exp(C(1, 2)), std::exp(C(-3, 0.5))});
  // A real argument has a real gradient.
  const Array t = array({0.5}, f64);
  EXPECT_NEAR(grad([](const Array& x) { return sum(real(exp(x * C(0, 1)))); })(t).item<double>(), -std::sin(0.5),
              1e-12);
  expect_complex(grad([](const Array& x) { return sum(abs(x)); })(values_of({{3, 4}, 0})), {{0.6, -0.8}, 0});
  // A holomorphic function, by its pullback.
  const auto [y, pullback] = vjp([](const Array& x) { return sin(x); }, z);
  expect_complex(std::get<0>(pullback(ones_like(y))), {std::cos(C(1, 2)), std::cos(C(-3, 0.5))});
}

TEST(Complex, JitAndVmapAreEager) {
  const Array z = reshape(values_of({{1, 2}, {-3, 0.5}, {0, 1}, {2, 2}}), {2, 2});
  const auto f = [](const Array& x) { return sum(exp(x * C(0, 1)) * conj(x)); };
  const C first = f(at(z, 0)).item<C>(), second = f(at(z, 1)).item<C>();
  expect_complex(vmap(f)(z), {first, second});
  expect_complex(jit([&](const Array& x) { return vmap(f)(x); })(z), {first, second});
}

TEST(Complex, ErrorsSayWhatToDo) {
  const Array z = values_of(kA, c64);
  EXPECT_THROWS(static_cast<void>(z < z), Error,
                "lt: operand 0 is c64[3]; the op takes no complex numbers: use real(), imag() or abs() of it");
  EXPECT_THROWS(max(z), Error, "takes no complex numbers");
  EXPECT_THROWS(floor(z), Error, "takes no complex numbers");
  EXPECT_THROWS(sort(z), Error, "takes no complex numbers");
  EXPECT_THROWS(z & z, Error, "bitwise operations need integers");
  EXPECT_THROWS(complex(z, z), Error, "complex: the parts are c64[3] and c64[3]; give real arrays");
  EXPECT_THROWS(grad([](const Array& x) { return sum(x); })(z), Error,
                "grad: the function returned c64[]; a gradient needs a real result: use real() or abs() of it");
}

}  // namespace
}  // namespace lockstep
