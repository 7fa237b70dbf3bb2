// Kernels that compute several equations (ops/cuda/combined.h) on a GPU: the results of the equations one by one.
#ifdef LOCKSTEP_WITH_CUDA
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <tuple>

#include "lane/cuda/cuda_stream.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/cuda/combined.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "plan/cuda/cuda_plan.h"
#include "rows/on_gpu.h"
#include "rows/rows.h"

namespace lockstep {
namespace {

class CombinedOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  }

  static HostArray normal(const Type& type, uint32_t seed, double deviation = 1) {
    HostArray out(type);
    std::mt19937 random(seed);
    std::normal_distribution<double> number(0, deviation);
    for (int64_t i = 0; i < out.size(); ++i) out.set(i, number(random));
    return out;
  }

  static void expect_combined(const Program& p, const HostArrays& in, bool is_combined = true) {
    const std::string text = compile(p, test_pool(), CudaStream::local())->describe();
    EXPECT_EQ(text.find("combined[") != std::string::npos, is_combined) << text;
    const HostArrays wanted = eager(p, in);
    for (const bool donated : {false, true}) {
      const HostArrays got = planned_on_gpu(p, in, std::vector<bool>(in.size(), donated));
      for (size_t o = 0; o < got.size(); ++o) {
        SCOPED_TRACE(fmt::format("result {} of\n{}", o, print(p)));
        expect_close(got[o], wanted[o]);
      }
    }
  }
};

// Rows of a warp, of a thread block that keeps them or reads them again, and rows that are not aligned.
TEST_F(CombinedOnGpu, LossAndItsGradient) {
  uint32_t seed = 0;
  for (const auto& [dtype, classes] : {std::pair{DType::bf16, 65},
                                       {DType::f32, 64},
                                       {DType::bf16, 3000},
                                       {DType::f32, 2999},
                                       {DType::f16, 3004},
                                       {DType::f32, 30000},
                                       {DType::f64, 2500}})
    for (const bool keeps_lse : {false, true}) {
      SCOPED_TRACE(fmt::format("{} classes of {}", classes, name(dtype)));
      Builder b;
      const Type logits{dtype, {3, 7, classes}}, labels{DType::i32, {3, 7}};
      const double smoothing = classes == 3000 ? 0.1 : 0;
      const Value x = b.input(logits), y = b.input(labels);
      const Values loss = cross_entropy(x, y, smoothing);
      const Value dloss = b.input(loss[0].type());
      Values out{reduce_sum(loss[0], {0, 1}), cross_entropy_grad(x, y, loss[1], dloss, smoothing)};
      if (keeps_lse) out.push_back(loss[1]);
      HostArrays in{normal(logits, ++seed, 3), HostArray(labels), normal(dloss.type(), ++seed)};
      std::mt19937 random(seed);
      for (int64_t i = 0; i < in[1].size(); ++i)
        in[1].set(i, std::uniform_int_distribution<int>(0, static_cast<int>(classes) - 1)(random));
      in[2].set(4, 0);
      expect_combined(b.take(out), in);
    }
}

TEST_F(CombinedOnGpu, LabelsThatAreNoClassHaveNoGradient) {
  Builder b;
  const Type logits{DType::f32, {4, 3000}}, labels{DType::i32, {4}}, cotangent{DType::f32, {4}};
  const Value x = b.input(logits), y = b.input(labels), dloss = b.input(cotangent);
  const Values loss = cross_entropy(x, y);
  const Program p = b.take(Values{loss[0], cross_entropy_grad(x, y, loss[1], dloss)});
  HostArrays in{normal(logits, 3), HostArray(labels), normal(cotangent, 4)};
  for (int64_t i = 0; i < 4; ++i)
    in[1].set(i, static_cast<double>(std::vector{-1, 3000, 2999, 5}[static_cast<size_t>(i)]));
  const HostArrays got = planned_on_gpu(p, in);
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(std::isnan(got[0].get(row)), row < 2) << row;
    for (int64_t i = 0; i < 3000; ++i) ASSERT_EQ(got[1].get(row * 3000 + i) == 0, row < 2) << row << " " << i;
  }
}

// The cotangent of the loss depends on the loss.
TEST_F(CombinedOnGpu, LossesOfWhichTheGradientDependsStaySeparate) {
  Builder b;
  const Type logits{DType::f32, {4, 100}}, labels{DType::i32, {4}};
  const Value x = b.input(logits), y = b.input(labels);
  const Values loss = cross_entropy(x, y);
  const Program p = b.take(Values{cross_entropy_grad(x, y, loss[1], loss[0] + loss[0])});
  HostArrays in{normal(logits, 5), HostArray(labels)};
  expect_combined(p, in, false);
}

// Of products with an epilogue that cuBLASLt does not have. (Plans combine large ones only.)
TEST_F(CombinedOnGpu, SumsOfColumnsOfAProductWithAnEpilogue) {
  for (const auto& [dtype, rows, columns] :
       {std::tuple{DType::bf16, 300, 264}, {DType::bf16, 36, 8}, {DType::f16, 1000, 1024}})
    for (const bool keeps_product : {false, true}) {
      Builder body;
      const Type left{dtype, {2, rows / 2, 40}}, right{dtype, {40, columns}}, result{dtype, {2, rows / 2, columns}};
      Builder epilogue;
      const Value product = epilogue.input(result), other = epilogue.input(result);
      const Value y = product * tanh(other);
      Values results{y};
      if (keeps_product) results = {product, y};
      const Value in[] = {body.input(left), body.input(right), body.input(result)};
      Attrs attrs{{"spec", std::string("abk,kn->abn")}};
      attrs.set("body", std::make_shared<const Program>(epilogue.take(results)));
      Values out = body.emit(einsum_fused_op, in, attrs);
      out.push_back(reduce_sum(out[results.size() - 1], {0, 1}));
      Builder b;
      const Values operands{b.input(left), b.input(right), b.input(result)};
      const Program p = b.take(combined(b, "product_and_column_sums", operands, body.take(out)));
      HostArrays arrays;
      for (const Type& type : p.input_types()) arrays.push_back(normal(type, static_cast<uint32_t>(columns)));
      expect_combined(p, arrays);
    }
}

// Slices and concatenations in any order, fewer heads of keys, and slices that are used elsewhere. There is no kernel for
// f64: its equations are computed one by one, on the host.
TEST_F(CombinedOnGpu, AttentionReadsSlicesAndWritesConcatenations) {
  for (const auto& [dtype, features] : {std::pair{DType::bf16, 64}, {DType::f16, 24}, {DType::f64, 16}})
    for (const bool other_order : {false, true}) {
      SCOPED_TRACE(fmt::format("{} of {}", features, name(dtype)));
      const int64_t batch = 2, tokens = 70, heads = 4, of_keys = 2, all = heads + 2 * of_keys;
      Builder b;
      const Value x = b.input({dtype, {batch, tokens, all, features}});
      const auto part = [&](int64_t first, int64_t count) {
        return slice(x, {0, 0, first, 0}, {batch, tokens, first + count, features}, {1, 1, 1, 1});
      };
      const Value v = part(other_order ? 0 : heads + of_keys, of_keys), q = part(other_order ? of_keys : 0, heads),
                  k = part(other_order ? of_keys + heads : heads, of_keys);
      const AttentionAttrs attrs{.causal = true, .scale = 0.2};
      const Values y = attention(q, k, v, attrs);
      const Value dy = b.input(y[0].type());
      const Value of_grad[] = {q, k, v, y[0], y[1], dy};
      const Values grads = b.emit(attention_grad_op, of_grad, Attrs(b.definition(y[0])->attrs));
      Values out{y[0], other_order ? concatenate({grads[2], grads[0], grads[1]}, 2) : concatenate(grads, 2)};
      if (other_order) out.push_back(k + k);
      const Program p = b.take(out);
      HostArrays in;
      for (const Type& type : p.input_types()) in.push_back(normal(type, 3));
      expect_combined(p, in);
    }
}

struct NormCase {
  DType dtype;
  Shape shape;
};

// Rows of a warp, of a thread block, and longer ones; vectors of several sizes.
TEST_F(CombinedOnGpu, GradientsOfNormsWithResidualsAndSums) {
  uint32_t seed = 0;
  for (const NormCase& c : {NormCase{DType::bf16, {3, 50, 768}},
                            {DType::f32, {700, 100}},
                            {DType::bf16, {40, 31}},
                            {DType::f16, {20, 3000}},
                            {DType::f32, {9, 20001}},
                            {DType::f64, {30, 200}}})
    for (const bool centered : {true, false})
      for (const auto& [residual, sums] : {std::pair{true, true}, {true, false}, {false, true}}) {
        if (!(residual && sums) && c.shape.back() != 768) continue;
        Builder b;
        const Type row{c.dtype == DType::f64 ? DType::f64 : DType::f32, Shape(c.shape.begin(), c.shape.end() - 1)};
        const Value x = b.input({c.dtype, c.shape}), scale = b.input({DType::f32, {c.shape.back()}});
        const Value mean = b.input(row), rstd = b.input(row), dy = b.input(x.type()), more = b.input(x.type());
        Values out = centered ? layer_norm_grad(x, scale, mean, rstd, dy) : rms_norm_grad(x, scale, rstd, dy);
        if (residual) out[0] = seed % 2 == 0 ? out[0] + more : more + out[0];
        std::vector<int64_t> rows;
        for (size_t d = 0; d + 1 < c.shape.size(); ++d) rows.push_back(static_cast<int64_t>(d));
        if (sums) out.push_back(reduce_sum(out[0], rows));
        const Program p = b.take(out);
        HostArrays in;
        for (const Type& type : p.input_types()) in.push_back(normal(type, ++seed));
        expect_combined(p, in);
      }
}

TEST_F(CombinedOnGpu, GradientsOfNormsThatAreUsedTwiceStaySeparate) {
  Builder b;
  const Value x = b.input({DType::f32, {20, 64}}), scale = b.input({DType::f32, {64}}),
              rstd = b.input({DType::f32, {20}});
  const Value dy = b.input(x.type());
  const Values grads = rms_norm_grad(x, scale, rstd, dy);
  const Program p = b.take(Values{grads[0] + x, grads[0], grads[1]});
  HostArrays in;
  for (const Type& type : p.input_types()) in.push_back(normal(type, 7));
  expect_combined(p, in, false);
}

}  // namespace
}  // namespace lockstep
#endif
