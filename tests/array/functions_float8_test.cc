// 8-bit floats as elements of arrays: conversion, movement, errors, quantization and products.
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include <cmath>
#include <limits>

#include "base/throws.h"
#include "lockstep/quantize.h"

namespace lockstep {
namespace {

TEST(Float8Arrays, ConversionOfAllCodesRoundTrips) {
  std::vector<Float8E4M3> codes(256);
  for (size_t i = 0; i < codes.size(); ++i) codes[i].bits = static_cast<uint8_t>(i);
  const Array x = Array::from(codes, {256});
  EXPECT_EQ(x.dtype(), f8_e4m3);
  for (const DType wide : {bf16, f16, f32, f64}) {
    const Array again = astype(astype(x, wide), f8_e4m3);
    const std::span<const Float8E4M3> back = again.data<Float8E4M3>();
    for (size_t i = 0; i < codes.size(); ++i) {
      const bool is_nan = (i & 0x7f) == 0x7f;
      EXPECT_TRUE(is_nan || back[i].bits == codes[i].bits) << name(wide) << " " << i;
    }
  }
}

TEST(Float8Arrays, ConversionRoundsAndSaturates) {
  const float inf = std::numeric_limits<float>::infinity();
  const Array x = array<float>({1.0625f, 1.1875f, 500, -inf, 0x1p-10f, 0x1.8p-10f, -3});
  EXPECT_EQ(astype(x, f8_e4m3).to_vector<float>(), (std::vector<float>{1, 1.25f, 448, -448, 0, 0x1p-9f, -3}));
  EXPECT_EQ(astype(x, f8_e5m2).to_vector<float>(),
            (std::vector<float>{1, 1.25f, 512, -57344, 0x1p-10f, 0x1.8p-10f, -3}));
  EXPECT_TRUE(std::isnan(astype(Array(std::nanf("")), f8_e5m2).item<float>()));
}

TEST(Float8Arrays, PrintTheirValues) {
  EXPECT_EQ(astype(array<float>({1.5f, -448}), f8_e4m3).to_string(), "f8_e4m3[2] [1.5, -448]");
}

TEST(Float8Arrays, CanBeMovedButNotComputedWith) {
  const Array x = astype(reshape(arange(6, f32), {2, 3}), f8_e4m3);
  EXPECT_EQ(transpose(x).to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(concatenate({x, zeros({1, 3}, f8_e4m3)}).to_vector<float>(),
            (std::vector<float>{0, 1, 2, 3, 4, 5, 0, 0, 0}));
  EXPECT_EQ((x + ones({3}, bf16)).dtype(), bf16);  // converted first
  EXPECT_THROWS(x + x, Error, "add: operand 0 is f8_e4m3[2,3]; 8-bit floats are only stored: cast it to bf16 or f32");
  EXPECT_THROWS(dot(x, transpose(x)), Error, "8-bit floats are only stored");
  EXPECT_THROWS(sum(x), Error, "8-bit floats are only stored");
}

TEST(Quantize, GivesTheMatrixItsTransposeAndTheLargestValue) {
  const Array x = array<float>({1, -8, 3, 900, 5, 6});
  const Quantized q = quantize(reshape(x, {2, 3}), 2.0f);
  EXPECT_EQ(q.values.to_vector<float>(), (std::vector<float>{0.5f, -4, 1.5f, 448, 2.5f, 3}));
  EXPECT_EQ(q.transposed.to_vector<float>(), (std::vector<float>{0.5f, 448, -4, 2.5f, 1.5f, 3}));
  EXPECT_EQ(q.transposed.type(), (Type{f8_e4m3, {3, 2}}));
  EXPECT_EQ(q.largest.item<float>(), 900);
  EXPECT_EQ(q.scale.item<float>(), 2);
}

TEST(Quantize, LargestValueShowsNan) {
  const Array x = array<float>({1, std::nanf(""), 3, 4});
  EXPECT_TRUE(std::isnan(quantize(reshape(x, {2, 2}), 1.0f, f8_e5m2).largest.item<float>()));
}

TEST(ScaledProduct, MultipliesByBothScales) {
  const Array a = astype(reshape(arange(6, f32), {2, 3}), f8_e4m3), b = astype(ones({1, 3}), f8_e5m2);
  EXPECT_EQ(scaled_product(a, b, 0.5f, 4.0f).to_vector<float>(), (std::vector<float>{6, 24}));
  EXPECT_EQ(scaled_product(a, b, 1.0f, 1.0f, bf16).dtype(), bf16);
}

TEST(ScaledProduct, MistakesAreErrors) {
  const Array x = ones({2, 3}), a = astype(x, f8_e4m3), one = 1.0f;
  EXPECT_THROWS(quantize(x, one, bf16), Error, "quantize: the result would be bf16; choose f8_e4m3 or f8_e5m2");
  EXPECT_THROWS(quantize(ones({3}), one), Error, "quantize: x is f32[3]; it must be a matrix of bf16, f16 or f32");
  EXPECT_THROWS(quantize(x, ones({2})), Error, "quantize: the scale is f32[2]; it must be f32[]");
  EXPECT_THROWS(scaled_product(x, a, one, one), Error,
                "scaled_product: operand 0 is f32[2,3]; it must be a matrix of 8-bit floats");
  EXPECT_THROWS(scaled_product(a, astype(ones({2, 4}), f8_e4m3), one, one), Error,
                "scaled_product: the operands are f8_e4m3[2,3] and f8_e4m3[2,4]; they must have equally many columns");
  EXPECT_THROWS(scaled_product(a, a, one, ones({1})), Error, "scaled_product: scale 1 is f32[1]; it must be f32[]");
  EXPECT_THROWS(scaled_product(a, a, one, one, f64), Error,
                "scaled_product: the result would be f64; choose bf16, f16 or f32");
}

TEST(PowerOfTwoAbove, IsTheSmallest) {
  const float inf = std::numeric_limits<float>::infinity();
  const Array x = array<float>({1, 1.01f, 2, 3, 0.25f, 0, inf, std::nanf(""), 1e-38f, 1e38f});
  EXPECT_EQ(power_of_two_above(x).to_vector<float>(),
            (std::vector<float>{1, 2, 2, 4, 0.25f, 1, 1, 1, 0x1p-100f, 0x1p100f}));
}

}  // namespace
}  // namespace lockstep
