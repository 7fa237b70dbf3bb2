// Matrix products on a GPU inside a persistent kernel (plan/cuda/persistent_kernel.h), on tensor cores.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <random>

#include "hardware/cuda/api.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"
#include "passes/passes.h"
#include "rows/on_gpu.h"

namespace lockstep {
namespace {

struct Product {
  int64_t m, n, k;
  bool ta, tb;
};

// With small integers every product and sum is exact, also in TF32 and in 16 bits.
TEST(ProductsOnGpu, AreExactInAPersistentKernel) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261115);
  std::vector<Product> products = {{128, 1024, 784, false, false}, {128, 1024, 1024, false, true},
                                   {784, 1024, 128, true, false},  {128, 10, 1024, false, false},
                                   {1024, 10, 128, true, false},   {128, 256, 784, false, false},
                                   {1, 1, 1, false, false},        {17, 33, 9, true, true}};
  const auto below = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(random); };
  for (int i = 0; i < 24; ++i) products.push_back({below(200), below(200), below(300), i % 2 == 0, i / 2 % 2 == 0});
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (size_t i = 0; i + 1 < products.size(); i += 2) {
      Builder b;
      HostArrays in;
      std::string text;
      Values out;
      for (const Product& p : {products[i], products[i + 1]}) {
        const Type left{dtype, p.ta ? Shape{p.k, p.m} : Shape{p.m, p.k}};
        const Type right{dtype, p.tb ? Shape{p.n, p.k} : Shape{p.k, p.n}};
        const std::string spec = fmt::format("{},{}->mn", p.ta ? "km" : "mk", p.tb ? "nk" : "kn");
        text += fmt::format("{} {} {}  ", to_string(left), to_string(right), spec);
        in.push_back(small_integers(left, random()));
        in.push_back(small_integers(right, random()));
        const Value x = b.input(left), y = b.input(right);
        out.push_back(b.emit(einsum_op, Values{x, y}, {{"spec", spec}})[0]);
      }
      SCOPED_TRACE(text);
      const Program program = b.take(out);
      const HostArrays got = planned_on_gpu(program, in), wanted = eager(program, in);
      for (size_t o = 0; o < got.size(); ++o) EXPECT_EQ(got[o].values(), wanted[o].values());
    }
}

// As in updates of weights: epilogues that read other arrays element by element.
TEST(ProductsOnGpu, AreExactWithEpiloguesThatReadArrays) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261118);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{784, 1024, 128},
                                  {1024, 1024, 128},
                                  {1000, 1152, 64},
                                  {1030, 1000, 100},
                                  {96, 64, 40}}) {
      SCOPED_TRACE(fmt::format("{} x {} x {}, {}", m, n, k, name(dtype)));
      Builder b;
      const Value x = b.input({dtype, {k, m}}), y = b.input({dtype, {k, n}});
      const Value w = b.input({DType::f32, {m, n}}), v = b.input({dtype, {m, n}}), bias = b.input({DType::f32, {n}});
      const Value product = cast(einsum("km,kn->mn", x, y), DType::f32);
      const Value one = w - product + broadcast(bias, {m, n}, {1});
      const Value other = cast(v, DType::f32) * w + cast(einsum("km,kn->mn", x, y), DType::f32);
      const Program program = fuse(b.take(Values{one, other}));
      expect_same_on_gpu(program, random);
    }
}

}  // namespace
}  // namespace lockstep
#endif
