// The work of a compiled function: the multiplications of its products, convolutions and attention.
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

namespace lockstep {
namespace {

TEST(MultiplyAdds, OfAProductAndItsGradients) {
  const Array a = ones({3, 5}), b = ones({5, 7});
  const auto product = [](const Array& x, const Array& y) { return matmul(x, y); };
  EXPECT_EQ(jit(product).multiply_adds(a, b), 3 * 5 * 7);
  // With an elementwise epilogue, and for both operands' gradients.
  const auto loss = [](const Array& x, const Array& y) { return sum(tanh(matmul(x, y) + 1.0)); };
  EXPECT_EQ(jit(loss).multiply_adds(a, b), 3 * 5 * 7);
  const auto gradients = grad<0, 1>([](const Array& x, const Array& y) { return sum(tanh(matmul(x, y))); });
  EXPECT_EQ(jit(gradients).multiply_adds(a, b), 3 * (3 * 5 * 7));
}

TEST(MultiplyAdds, OfBatchesAndConvolutions) {
  const auto batched = [](const Array& x, const Array& y) { return einsum("bij,bjk->bik", x, y); };
  EXPECT_EQ(jit(batched).multiply_adds(ones({2, 3, 5}), ones({2, 5, 7})), 2 * 3 * 5 * 7);
  const auto convolution = [](const Array& x, const Array& w) { return conv2d(x, w); };
  const Array x = ones({2, 8, 8, 3}), w = ones({3, 3, 3, 4});
  const double each = 2 * 8 * 8 * 4 * (3 * 3 * 3);
  EXPECT_EQ(jit(convolution).multiply_adds(x, w), each);
  const auto gradients = grad<0, 1>([](const Array& y, const Array& v) { return sum(square(conv2d(y, v))); });
  EXPECT_EQ(jit(gradients).multiply_adds(x, w), 3 * each);
}

TEST(MultiplyAdds, OfAttentionWithoutRegardToTheMask) {
  const Array q = ones({2, 6, 4, 8}), k = ones({2, 6, 4, 8});
  const auto attention = [](const Array& x, const Array& y) {
    return dot_product_attention(x, y, y, {.causal = true}).first;
  };
  const double each = 2 * 4 * 6 * 6 * (8 + 8);
  EXPECT_EQ(jit(attention).multiply_adds(q, k), each);
  const auto gradient = grad([&](const Array& x, const Array& y) { return sum(attention(x, y)); });
  EXPECT_EQ(jit(gradient).multiply_adds(q, k), each + 2 * each);
}

TEST(MultiplyAdds, OfRepeatedAndConditionalPrograms) {
  const Array w = ones({4, 4}), x = ones({2, 4});
  const auto repeated = [](const Array& matrix, const Array& first) {
    return fori_loop(
        0, 6, [&](const Array&, const Array& y) { return tanh(matmul(y, matrix)); }, first);
  };
  EXPECT_EQ(jit(repeated).multiply_adds(w, x), 6 * (2 * 4 * 4));
  const auto either = [](const Array& matrix, const Array& y) {
    return cond(
        sum(y) > 0, [&](const Array& z) { return matmul(matmul(z, matrix), matrix); },
        [&](const Array& z) { return matmul(z, matrix); }, y);
  };
  EXPECT_EQ(jit(either).multiply_adds(w, x), 2 * (2 * 4 * 4));
  EXPECT_EQ(jit([](const Array& y) { return tanh(y) * y; }).multiply_adds(x), 0);
}

}  // namespace
}  // namespace lockstep
