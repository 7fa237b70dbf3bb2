// The kernels of attention on the GPU in the cases that the samples of tests/rows do not reach: several tiles of every
// kind of mask, all widths of heads, shards, and f32 products by TF32.
#ifdef LOCKSTEP_WITH_CUDA
#include "lockstep/runtime.h"
#include "ops/attention.h"
#include "rows/on_gpu.h"
#include "rows/rows.h"

namespace lockstep {
namespace {

// b, t, h, e, s, g, f as in AttentionSizes.
struct GpuAttention {
  DType dtype;
  int64_t b, t, h, e, s, g, f;
  AttentionAttrs attrs = {};
  std::string extras = "";
  int64_t document = 0;  // tokens per segment, if `extras` is "segments"; 0: random segments

  bool has(const char* extra) const { return extras.find(extra) != std::string::npos; }
  Attrs row_attrs() const {
    return {{"causal", attrs.causal},   {"window", attrs.window},
            {"scale", attrs.scale},     {"softcap", attrs.softcap},
            {"dropout", attrs.dropout}, {"first", Dims(attrs.first.begin(), attrs.first.end())},
            {"extras", extras}};
  }
  Sample forward() const {
    Sample out{{{{dtype, {b, t, h, e}}}, {{dtype, {b, s, g, e}}}, {{dtype, {b, s, g, f}}}}, row_attrs()};
    add_extras(out);
    return out;
  }
  // Of q, k, v, y, lse, dy.
  Sample gradient() const {
    Sample out{{{{dtype, {b, t, h, e}}}, {{dtype, {b, s, g, e}}}, {{dtype, {b, s, g, f}}}}, row_attrs()};
    const Type y{dtype, {b, t, h, f}};
    out.in.insert(out.in.end(), {{y}, {{DType::f32, {b, h, t}}}, {y}});
    add_extras(out);
    return out;
  }

 private:
  void add_extras(Sample& out) const {
    const auto add = [&](Type type, Domain domain) { out.in.push_back({std::move(type), domain}); };
    const auto keys = static_cast<double>(s);
    if (has("offset")) add({DType::i32, {}}, {Domain::real, keys / 4, keys / 2});
    if (has("lengths")) add({DType::i32, {b}}, {Domain::real, keys / 4, keys});
    if (has("segments")) {
      add({DType::i32, {b, t}}, {Domain::real, 0, 2});
      add({DType::i32, {b, s}}, {Domain::real, 0, 2});
    }
    if (has("dropout_key")) add({DType::u32, {2}}, {Domain::real, 0, 4294967295.0});
  }
};

RefArrays to_references(const HostArrays& in) {
  RefArrays out;
  for (const HostArray& x : in) out.push_back(to_reference(x));
  return out;
}

// Operands of both rows: those of the gradient include the results of the first.
struct GpuOperands {
  HostArrays forward, gradient;
  RefArrays results;

  explicit GpuOperands(const GpuAttention& c) : forward(make_inputs(c.forward(), 3)) {
    if (c.document > 0)
      for (const auto& [operand, tokens] : {std::pair{3u, c.t}, std::pair{4u, c.s}})
        for (int64_t i = 0; i < forward[operand].size(); ++i) forward[operand].set(i, i % tokens / c.document);
    results = reference_of(attention_op, c.forward(), to_references(forward));
    gradient = make_inputs(c.gradient(), 5);
    for (size_t i = 0; i < 3; ++i) gradient[i] = forward[i];
    for (size_t i = 0; i < 2; ++i) gradient[3 + i] = from_reference(results[i]);
    for (size_t i = 3; i < forward.size(); ++i) gradient[3 + i] = forward[i];
  }
};

class AttentionOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  }
  static HostArrays forward(const GpuAttention& c, const HostArrays& in) {
    return planned_on_gpu(program_of(attention_op, c.forward()), in);
  }
  static HostArrays gradient(const GpuAttention& c, const HostArrays& in) {
    return planned_on_gpu(program_of(attention_grad_op, c.gradient()), in);
  }
  static void expect_matches(const GpuAttention& c) {
    SCOPED_TRACE(c.forward().text(attention_op));
    const GpuOperands in(c);
    const HostArrays got = forward(c, in.forward), grads = gradient(c, in.gradient);
    for (size_t k = 0; k < got.size(); ++k) expect_close(got[k], from_reference(in.results[k]));
    const RefArrays wanted = reference_of(attention_grad_op, c.gradient(), to_references(in.gradient));
    for (size_t k = 0; k < grads.size(); ++k) expect_close(grads[k], from_reference(wanted[k]));
  }
};

constexpr DType kTypes[] = {DType::bf16, DType::f16, DType::f32};

TEST_F(AttentionOnGpu, MatchesForAllMasks) {
  const AttentionAttrs causal{.causal = true, .scale = 0.2}, window{.causal = true, .window = 40, .scale = 0.2};
  expect_matches({DType::bf16, 2, 200, 4, 32, 200, 2, 32, causal});
  expect_matches({DType::bf16, 1, 200, 2, 32, 200, 1, 32, window});
  expect_matches({DType::f16, 2, 90, 2, 32, 260, 1, 32, causal, "offset,lengths"});
  expect_matches({DType::bf16, 2, 150, 2, 32, 150, 2, 32, causal, "segments"});
  expect_matches({DType::f16, 1, 130, 6, 32, 170, 2, 32, {.window = 30, .scale = 0.2, .softcap = 3}});
  expect_matches({DType::f32, 2, 100, 4, 32, 100, 2, 32, window, "offset,lengths,segments"});
}

// Tiles are skipped, partly seen, or within one document.
TEST_F(AttentionOnGpu, MatchesForDocuments) {
  const AttentionAttrs causal{.causal = true, .scale = 0.2};
  expect_matches({DType::bf16, 2, 200, 1, 32, 200, 1, 32, causal, "segments", 150});
  expect_matches({DType::f16, 1, 200, 2, 32, 300, 1, 32, {.scale = 0.2}, "segments", 37});
  expect_matches({DType::f32, 1, 150, 1, 32, 150, 1, 32, causal, "segments", 64});
}

TEST_F(AttentionOnGpu, MatchesForAllWidthsOfHeads) {
  // With larger scores, f32 itself would not be exact enough for the tolerance.
  const AttentionAttrs causal{.causal = true, .scale = 0.1}, wide{.causal = true, .scale = 1.0 / 16};
  for (const DType dtype : kTypes) {
    expect_matches({dtype, 1, 70, 2, 40, 70, 1, 96, causal});
    expect_matches({dtype, 1, 70, 1, 256, 70, 1, 248, wide});
  }
  expect_matches({DType::bf16, 1, 140, 1, 33, 70, 1, 7, causal});
  expect_matches({DType::bf16, 1, 70, 1, 192, 70, 1, 128, causal});
  expect_matches({DType::f16, 1, 140, 1, 128, 70, 1, 128, causal});
  expect_matches({DType::bf16, 1, 9, 1, 264, 9, 1, 264, causal});  // computed on the host
}

// Warpgroups multiply heads of 64 and 128 features if there are 64 rows or more.
TEST_F(AttentionOnGpu, MatchesForHeadsOfWarpgroups) {
  const AttentionAttrs causal{.causal = true, .scale = 0.1}, window{.causal = true, .window = 70, .scale = 0.1};
  expect_matches({DType::bf16, 1, 129, 2, 64, 129, 1, 64, causal});
  expect_matches({DType::f16, 1, 64, 1, 128, 150, 1, 128, window, "offset"});
  expect_matches({DType::f16, 1, 70, 1, 64, 80, 1, 128, {.scale = 0.1, .softcap = 3}});
  expect_matches({DType::bf16, 1, 140, 1, 128, 140, 1, 64, causal, "segments", 90});
  expect_matches({DType::bf16, 2, 70, 2, 64, 90, 1, 64, {.scale = 0.1, .dropout = 0.25}, "lengths,dropout_key"});
}

// With many thread blocks, warps have 32 rows.
TEST_F(AttentionOnGpu, MatchesForManyThreadBlocks) {
  expect_matches({DType::bf16, 1, 140, 66, 32, 140, 66, 32, {.causal = true, .scale = 0.2}});
  expect_matches({DType::f16, 1, 40, 132, 128, 70, 132, 128, {.window = 30, .scale = 0.1}});
  expect_matches({DType::bf16, 3, 20, 88, 64, 30, 44, 64, {.scale = 0.2, .dropout = 0.25}, "segments,dropout_key"});
}

TEST_F(AttentionOnGpu, MatchesForAllSignsOfTheScale) {
  for (const double scale : {-0.2, 0.0})
    for (const double softcap : {0.0, 2.0})
      expect_matches({DType::bf16, 1, 40, 1, 32, 40, 1, 32, {.scale = scale, .softcap = softcap}});
}

TEST_F(AttentionOnGpu, ShardsAreAtTheirGlobalIndices) {
  const AttentionAttrs shard{.causal = true, .scale = 0.2, .dropout = 0.25, .first = {3, 4, 50}};
  expect_matches({DType::bf16, 2, 100, 4, 32, 150, 2, 32, shard, "dropout_key"});
  expect_matches({DType::f32, 1, 40, 2, 32, 90, 1, 32, shard, "offset,dropout_key"});
}

// All weights are equal and the values are those of an identity matrix, so the results are the weights.
TEST_F(AttentionOnGpu, DropsTheWeightsThatTheCpuDrops) {
  for (const DType dtype : kTypes) {
    const GpuAttention c{dtype, 2, 70, 2, 32, 80, 1, 80, {.dropout = 0.5}, "dropout_key"};
    HostArrays in = make_inputs(c.forward(), 9);
    for (int64_t i = 0; i < in[0].size(); ++i) in[0].set(i, 0);
    for (int64_t i = 0; i < in[2].size(); ++i) in[2].set(i, i / 80 % 80 == i % 80);
    const HostArray got = forward(c, in)[0], wanted = eager(program_of(attention_op, c.forward()), in)[0];
    for (int64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got.get(i) == 0, wanted.get(i) == 0) << "element " << i;
  }
}

// By warps, and by warpgroups.
TEST_F(AttentionOnGpu, TwoRunsGiveTheSameBits) {
  for (const int64_t width : {32, 64}) {
    const AttentionAttrs attrs{.causal = true, .scale = 0.2, .dropout = 0.1};
    const GpuAttention c{DType::bf16, 2, 150, 2, width, 150, 1, width, attrs, "dropout_key"};
    const GpuOperands in(c);
    const HostArrays first = forward(c, in.forward), again = forward(c, in.forward);
    for (size_t k = 0; k < first.size(); ++k) EXPECT_EQ(first[k].values(), again[k].values());
    const HostArrays grads = gradient(c, in.gradient), grads_again = gradient(c, in.gradient);
    for (size_t k = 0; k < grads.size(); ++k) EXPECT_EQ(grads[k].values(), grads_again[k].values());
  }
}

// Padding keys may hold anything.
TEST_F(AttentionOnGpu, PaddingIsNotRead) {
  const GpuAttention c{DType::bf16, 1, 40, 1, 32, 100, 1, 32, {.scale = 0.2}, "lengths"};
  HostArrays in = GpuOperands(c).gradient;
  const auto length = static_cast<int64_t>(in[6].get(0));
  ASSERT_LT(length, 100);
  HostArrays nan = in;
  for (const size_t operand : {1u, 2u}) {
    nan[operand] = copy_of(in[operand]);
    for (int64_t i = length * 32; i < nan[operand].size(); ++i) nan[operand].set(i, std::nan(""));
  }
  const HostArrays wanted = gradient(c, in), got = gradient(c, nan);
  for (size_t k = 0; k < got.size(); ++k) EXPECT_EQ(got[k].values(), wanted[k].values());
}

TEST_F(AttentionOnGpu, RoundsToTf32UnlessMathIsFull) {
  const GpuAttention c{DType::f32, 1, 70, 2, 64, 70, 1, 64, {.causal = true, .scale = 0.2}};
  const GpuOperands in(c);
  const HostArrays full = forward(c, in.forward);
  Runtime rounding({.gpu_math = "tf32"});
  const RuntimeScope scope(rounding);
  const HostArrays rounded = forward(c, in.forward), grads = gradient(c, in.gradient);
  const RefArrays wanted = reference_of(attention_grad_op, c.gradient(), to_references(in.gradient));
  const auto expect_near = [](const HostArray& got, const HostArray& reference) {
    for (int64_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got.get(i), reference.get(i), 0.02) << "element " << i;
  };
  for (size_t k = 0; k < full.size(); ++k) expect_near(rounded[k], full[k]);
  for (size_t k = 0; k < grads.size(); ++k) expect_near(grads[k], from_reference(wanted[k]));
  EXPECT_NE(rounded[0].values(), full[0].values());
}

}  // namespace
}  // namespace lockstep
#endif
