// GPU kernels of rows are texts, generated for each dtype, shape and set of attributes. They must compile,
// which needs no GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <functional>

#include "base/throws.h"
#include "lane/cuda/code.h"
#include "lockstep/error.h"
#include "ops/conv.h"
#include "ops/cuda/conv_direct_text.h"
#include "ops/cuda/conv_image_text.h"
#include "ops/cuda/conv_text.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/cuda_compiler.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// The texts of a row's kernels for these operands. Each must compile, alternately for an old and a new GPU.
using Texts = std::function<std::vector<std::string>(const KernelSpec&)>;
// `architecture`: empty: an old and a new one in turns.
void expect_compiles(const Op& op, const std::vector<Type>& in, const Attrs& attrs, const Texts& texts,
                     const std::string& architecture = "") {
  const std::vector<Type> out = infer_types(op, in, attrs);
  Pool pool({.threads = 1});
  const KernelSpec spec{.in = in, .out = out, .attrs = attrs, .pool = pool, .alias = {}};
  static int turn = 0;
  for (const std::string& text : texts(spec))
    EXPECT_FALSE(compile_quickly(text, !architecture.empty() ? architecture : ++turn % 2 ? "sm_80" : "sm_90").empty());
}

Attrs pool_attrs(std::vector<int64_t> window, std::vector<int64_t> stride, std::vector<int64_t> pad) {
  return {{"window", std::move(window)}, {"stride", std::move(stride)}, {"pad", std::move(pad)}};
}

TEST(CudaRowTexts, PoolingCompiles) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  const auto text = [](PoolPass pass) {
    return [pass](const KernelSpec& spec) { return std::vector<std::string>{pool_text(pass, spec)}; };
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::u8}) {
    SCOPED_TRACE(name(dtype));
    const Type x{dtype, {2, 6, 6, 12}}, y{dtype, {2, 3, 3, 12}};
    Attrs attrs = pool_attrs({2, 2}, {2, 2}, {0, 0, 0, 0});
    expect_compiles(max_pool_op, {x}, attrs, text(PoolPass::max));
    expect_compiles(max_pool_grad_op, {x, y, y}, attrs, text(PoolPass::max_grad));
    attrs = pool_attrs({3, 3}, {2, 2}, {1, 1, 1, 1});
    expect_compiles(max_pool_grad_op, {x, y, y}, attrs, text(PoolPass::max_grad));
    expect_compiles(max_pool_pick_op, {x, y, x}, attrs, text(PoolPass::pick));
    Builder b;
    const Value dx = b.input(x), other = b.input(x);
    const auto body =
        std::make_shared<const Program>(b.take(Values{select(gt(other, zeros_like(other)), dx, other), dx}));
    for (Attrs fused : {attrs, pool_attrs({2, 2}, {2, 2}, {0, 0, 0, 0})}) {
      fused.set("body", body);
      expect_compiles(max_pool_grad_fused_op, {x, y, y, x}, fused, text(PoolPass::max_grad));
    }
    expect_compiles(sum_pool_op, {x}, attrs, text(PoolPass::sum));
    attrs.set("shape", x.shape);
    expect_compiles(sum_pool_grad_op, {y}, attrs, text(PoolPass::sum_grad));
  }
}

TEST(CudaRowTexts, SortsCompile) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  const auto sorts = [](const KernelSpec& spec) { return sort_texts(false, spec); };
  const auto tops = [](const KernelSpec& spec) { return sort_texts(true, spec); };
  for (const DType dtype : {DType::f16, DType::f64, DType::i64, DType::boolean}) {
    SCOPED_TRACE(name(dtype));
    const Type near{dtype, {3, 100}}, far{dtype, {5000, 3}}, line{dtype, {5000}};
    expect_compiles(sort_op, {near, {DType::i32, {3, 100}}}, {{"axis", int64_t{1}}, {"descending", false}}, sorts);
    expect_compiles(sort_op, {far, far}, {{"axis", int64_t{0}}, {"descending", true}}, sorts);
    expect_compiles(top_k_op, {line}, {{"k", int64_t{10}}}, tops);
  }
}

// Rows of a warp, of a thread block, and longer ones.
TEST(CudaRowTexts, NormsCompile) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  const auto texts = [](NormPass pass) { return [pass](const KernelSpec& spec) { return norm_texts(pass, spec); }; };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const int64_t d : {384, 5000, 100001}) {
      const Type x{dtype, {30, d}}, statistic{dtype == DType::f64 ? DType::f64 : DType::f32, {30}};
      const Type scale{dtype == DType::f64 ? DType::f32 : dtype, {d}};
      SCOPED_TRACE(to_string(x));
      const Attrs attrs{{"batch_dims", int64_t{0}}, {"epsilon", 1e-5}}, grad_attrs{{"batch_dims", int64_t{0}}};
      expect_compiles(layer_norm_op, {x, scale, scale}, attrs, texts(NormPass::layer));
      expect_compiles(layer_norm_grad_op, {x, scale, statistic, statistic, x}, grad_attrs, texts(NormPass::layer_grad));
      if (dtype != DType::f32) continue;
      expect_compiles(rms_norm_op, {x, scale}, attrs, texts(NormPass::rms));
      expect_compiles(rms_norm_grad_op, {x, scale, statistic, x}, grad_attrs, texts(NormPass::rms_grad));
    }
}

TEST(CudaRowTexts, RotaryPositionsCompile) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  const auto texts = [](const KernelSpec& spec) { return std::vector<std::string>{rotary_text(spec)}; };
  for (const DType dtype : {DType::bf16, DType::f32, DType::f64})
    for (const bool inverse : {false, true})
      expect_compiles(rotary_op, {{dtype, {2, 10, 6, 64}}, {DType::i32, {10}}},
                      {{"base", 10000.0}, {"inverse", inverse}}, texts);
}

TEST(CudaRowTexts, QuantizationCompiles) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  const auto texts = [](const KernelSpec& spec) { return std::vector<std::string>{quantize_text(spec)}; };
  for (const DType from : {DType::bf16, DType::f32})
    for (const DType to : {DType::f8_e4m3, DType::f8_e5m2})
      for (const Shape& shape : {Shape{64, 256}, Shape{130, 301}, Shape{6, 20}})
        expect_compiles(quantize_op, {{from, shape}, {DType::f32, {}}}, {{"dtype", to}}, texts);
}

// The widths at which tiles change. All kernels are named after the row.
void expect_attention_compiles(DType dtype, int64_t tokens, int64_t width, int major) {
  const Type q{dtype, {2, tokens, 4, width}}, k{dtype, {2, tokens, 2, width}}, lse{DType::f32, {2, 4, tokens}};
  SCOPED_TRACE(to_string(q));
  const Attrs attrs = {{"causal", true},         {"window", int64_t{0}}, {"scale", 0.1},
                       {"softcap", 0.0},         {"dropout", 0.0},       {"first", std::vector<int64_t>{0, 0, 0}},
                       {"extras", std::string()}};
  const auto texts = [&](bool gradient, size_t kernels) {
    return [=](const KernelSpec& spec) {
      std::vector<std::string> out = attention_texts(spec, gradient, major);
      EXPECT_EQ(out.size(), kernels);
      for (const std::string& text : out) EXPECT_NE(text.find(" lockstep_attention"), std::string::npos) << text;
      return out;
    };
  };
  const std::string architecture = major == 9 ? "sm_90a" : "";
  expect_compiles(attention_op, {q, k, k}, attrs, texts(false, 1), architecture);
  expect_compiles(attention_grad_op, {q, k, k, q, lse, q}, attrs, texts(true, width > 128 ? 4 : 3), architecture);
}

TEST(CudaRowTexts, AttentionCompiles) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const int64_t width : {64, 128, 256}) expect_attention_compiles(dtype, 300, width, 8);
}

TEST(CudaRowTexts, AttentionByWarpgroupsCompiles) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  for (const int64_t width : {64, 128})
    for (const int64_t tokens : {300, 8192}) expect_attention_compiles(DType::bf16, tokens, width, 9);
}

template <CumulativeKind kKind>
void expect_cumulative_compiles(const Op& op, bool integers) {
  for (const DType dtype : {DType::bf16, DType::i32, DType::u32}) {
    if (!integers && dtype != DType::bf16) continue;
    for (const Shape& shape : {Shape{4, 8}, Shape{4, 1000}, Shape{4, 10000}}) {
      SCOPED_TRACE(to_string(Type{dtype, shape}));
      expect_compiles(op, {{dtype, shape}}, {{"axis", int64_t{1}}, {"reverse", dtype == DType::i32}},
                      [](const KernelSpec& spec) { return cumulative_texts(kKind, spec); });
    }
  }
}

TEST(CudaRowTexts, CumulativeResultsCompile) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  expect_cumulative_compiles<CumulativeKind::sum>(cumsum_op, true);
  expect_cumulative_compiles<CumulativeKind::prod>(cumprod_op, true);
  expect_cumulative_compiles<CumulativeKind::max>(cummax_op, true);
  expect_cumulative_compiles<CumulativeKind::min>(cummin_op, true);
  expect_cumulative_compiles<CumulativeKind::logsumexp>(cumlogsumexp_op, false);
}

TEST(CudaRowTexts, SortedScatterAddsCompile) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  const Attrs attrs{{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}};
  for (const DType dtype : {DType::bf16, DType::f32, DType::i64})
    for (const DType index : {DType::i32, DType::i64})
      for (const int64_t post : {72, 5}) {
        SCOPED_TRACE(to_string(Type{dtype, {1000, post}}));
        expect_compiles(scatter_add_op, {{dtype, {1000, post}}, {index, {3000}}, {dtype, {3000, post}}}, attrs,
                        scatter_sorted_texts);
      }
}

TEST(CudaRowTexts, SortedScattersCompile) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  for (const std::string how : {"set", "multiply", "min", "max"}) {
    const Attrs attrs{{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}, {"how", how}, {"unique", false}};
    for (const DType dtype : {DType::bf16, DType::i32}) {
      SCOPED_TRACE(how + " of " + std::string(name(dtype)));
      expect_compiles(scatter_op, {{dtype, {1000, 72}}, {DType::i32, {3000}}, {dtype, {3000, 72}}}, attrs,
                      scatter_sorted_texts);
    }
  }
  const Attrs last{{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}, {"how", std::string("max")}, {"unique", false}};
  expect_compiles(scatter_op, {{DType::boolean, {1000}}, {DType::i32, {3000}}, {DType::boolean, {3000}}}, last,
                  scatter_sorted_texts);
}

// The sort numbers the updates in 32 bits.
TEST(CudaRowTexts, ScattersOfTooManyUpdatesAreRefused) {
  const Type x{DType::u8, {1000}}, indices{DType::i32, {int64_t{1} << 32}}, updates{DType::u8, {int64_t{1} << 32}};
  const std::vector<Type> in = {x, indices, updates}, out = {x};
  const Attrs attrs{{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}};
  Pool pool({.threads = 1});
  const KernelSpec spec{.in = in, .out = out, .attrs = attrs, .pool = pool, .alias = {}};
  EXPECT_THROWS(scatter_sorted_cuda(spec), Error,
                "scatter_add: 4294967296 updates of one array are too many for a GPU; split them");
}

TEST(CudaRowTexts, CrossEntropyCountsManyClassesIn64Bits) {
  for (const auto& [classes, index] : {std::pair(int64_t{50304}, "uint32_t"), {(int64_t{1} << 32) + 10, "uint64_t"}}) {
    const std::vector<Type> in = {{DType::bf16, {2, classes}}, {DType::i64, {2}}};
    const Attrs attrs{{"smoothing", 0.1}};
    const std::vector<Type> out = infer_types(cross_entropy_op, in, attrs);
    Pool pool({.threads = 1});
    const KernelSpec spec{.in = in, .out = out, .attrs = attrs, .pool = pool, .alias = {}};
    const std::string text = cross_entropy_text(false, spec);
    EXPECT_NE(text.find(std::string("using Index = ") + index), std::string::npos) << text;
    if (has_cuda_compiler()) {
      EXPECT_FALSE(compile_quickly(text, "sm_90").empty());
    }
  }
}

TEST(CudaRowTexts, CrossEntropyCompiles) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    for (const int64_t classes : {1, 65, 50304}) {
      const Type logits{dtype, {12, classes}}, labels{classes == 1 ? DType::u8 : DType::i64, {12}};
      const Type loss{dtype == DType::f64 ? DType::f64 : DType::f32, {12}};
      SCOPED_TRACE(to_string(logits));
      const auto text = [](bool gradient) {
        return [gradient](const KernelSpec& spec) { return std::vector{cross_entropy_text(gradient, spec)}; };
      };
      const Attrs attrs{{"smoothing", classes == 65 ? 0.1 : 0.0}};
      expect_compiles(cross_entropy_op, {logits, labels}, attrs, text(false));
      expect_compiles(cross_entropy_grad_op, {logits, labels, loss, loss}, attrs, text(true));
    }
}

TEST(CudaRowTexts, ConvolutionsCompile) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  const ConvSpec first{
      .batch = 128, .in = {28, 28}, .out_channels = 32, .kernel = {5, 5}, .pad_lo = {2, 2}, .pad_hi = {2, 2}};
  const ConvSpec second{.batch = 8192,
                        .in = {14, 14},
                        .in_channels = 32,
                        .out_channels = 64,
                        .kernel = {5, 5},
                        .pad_lo = {2, 2},
                        .pad_hi = {2, 2}};
  const ConvSpec odd{.batch = 3,
                     .in = {9, 7},
                     .in_channels = 6,
                     .out_channels = 10,
                     .kernel = {3, 2},
                     .stride = {2, 1},
                     .pad_lo = {1, 0},
                     .pad_hi = {2, 3},
                     .in_dilation = {1, 2},
                     .kernel_dilation = {2, 1},
                     .groups = 2};
  struct Case {
    DType dtype;
    ConvMath math;
    std::vector<ConvSpec> specs;
  };
  const std::vector<Case> cases = {
      {DType::f32, ConvMath::fma, {second, odd}},  {DType::f32, ConvMath::tf32, {first, second, odd}},
      {DType::bf16, ConvMath::half, {first, odd}}, {DType::f16, ConvMath::half, {odd}},
      {DType::f16, ConvMath::fma, {odd}},          {DType::f64, ConvMath::fma, {odd}}};
  int turn = 0;
  for (const Case& c : cases)
    for (ConvSpec spec : c.specs)
      for (const ConvPass pass : {ConvPass::forward, ConvPass::input_grad, ConvPass::filter_grad}) {
        spec.dtype = c.dtype;
        const ConvLayout layout = conv_layout(pass, spec, c.math);
        const std::string architecture = ++turn % 2 ? "sm_80" : "sm_90";
        EXPECT_FALSE(compile_quickly(conv_text(pass, spec, c.math), architecture).empty());
        if (layout.splits > 1) {
          EXPECT_FALSE(compile_quickly(conv_sum_text(layout, c.dtype), architecture).empty());
        }
      }
}

TEST(CudaRowTexts, ConvolutionsOfSmallGroupsCompile) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  ConvSpec depthwise{.batch = 4,
                     .in = {14, 13},
                     .in_channels = 24,
                     .out_channels = 24,
                     .kernel = {3, 3},
                     .pad_lo = {1, 1},
                     .pad_hi = {1, 1},
                     .groups = 24};
  ConvSpec several = depthwise;
  several.out_channels = 24;
  several.groups = 8;
  several.stride = {2, 1};
  several.kernel_dilation = {1, 2};
  ConvSpec large = depthwise;
  large.groups = 2;
  EXPECT_FALSE(has_direct_conv(large));
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (ConvSpec spec : {depthwise, several})
      for (const ConvPass pass : {ConvPass::forward, ConvPass::input_grad, ConvPass::filter_grad}) {
        if (dtype != DType::f32 && pass == ConvPass::input_grad) continue;
        spec.dtype = dtype;
        EXPECT_TRUE(has_direct_conv(spec));
        EXPECT_FALSE(compile_quickly(conv_direct_text(pass, spec), "sm_80").empty());
        const ConvLayout l = conv_direct_layout(pass, spec);
        if (pass == ConvPass::forward) {
          Builder b;
          const ConvSpec::Pair out = conv_out(spec);
          const auto step = conv_direct_step(
              spec, b.take(Values{tanh(b.input({dtype, {spec.batch, out[0], out[1], spec.out_channels}}))}));
          ASSERT_TRUE(step);
          EXPECT_FALSE(compile_quickly(text_of(*step), "sm_90").empty());
        }
        if (pass != ConvPass::filter_grad) continue;
        EXPECT_GT(l.splits, 1);
        EXPECT_GE(l.tiles_each * l.splits, 4 * conv_out(spec)[0] * conv_out(spec)[1]);
        EXPECT_LT(l.tiles_each * (l.splits - 1), 4 * conv_out(spec)[0] * conv_out(spec)[1]);
      }
}

// Tiles cover the product, and splits the depth.
TEST(CudaRowTexts, SplitsCoverTheDepthOnce) {
  for (const int64_t batch : {1, 7, 128, 8192}) {
    const ConvSpec spec{
        .batch = batch, .in = {28, 28}, .out_channels = 32, .kernel = {5, 5}, .pad_lo = {2, 2}, .pad_hi = {2, 2}};
    for (const ConvPass pass : {ConvPass::forward, ConvPass::input_grad, ConvPass::filter_grad}) {
      const ConvLayout l = conv_layout(pass, spec, ConvMath::tf32);
      const int64_t each = l.tiles_each * l.tile_depth;
      EXPECT_GE(each * l.splits, l.depth);
      EXPECT_LT(each * (l.splits - 1), l.depth);
      EXPECT_EQ(l.blocks % l.splits, 0);
      EXPECT_EQ(l.results, l.rows * l.cols);
    }
  }
}

TEST(CudaRowTexts, ConvolutionsInSharedMemoryCompile) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  struct Case {
    ConvPass pass;
    DType dtype;
    int64_t image, in, out, kernel;
    const char* architecture;
  };
  const int64_t shared = 220 << 10;
  for (const Case& c : {Case{ConvPass::forward, DType::f32, 14, 32, 64, 5, "sm_90"},
                        Case{ConvPass::forward, DType::bf16, 28, 1, 32, 5, "sm_90"},
                        Case{ConvPass::forward, DType::f32, 9, 3, 10, 3, "sm_80"},
                        Case{ConvPass::input_grad, DType::f16, 14, 32, 64, 5, "sm_80"},
                        Case{ConvPass::input_grad, DType::f32, 14, 32, 64, 5, "sm_90"},
                        Case{ConvPass::filter_grad, DType::f32, 14, 32, 64, 5, "sm_90"},
                        Case{ConvPass::filter_grad, DType::f32, 28, 1, 32, 5, "sm_90"},
                        Case{ConvPass::filter_grad, DType::bf16, 28, 1, 32, 5, "sm_90"},
                        Case{ConvPass::filter_grad, DType::bf16, 14, 32, 64, 5, "sm_80"}}) {
    SCOPED_TRACE(fmt::format("{} x {} of {} to {} channels of {}", c.image, c.image, c.in, c.out, name(c.dtype)));
    const int64_t pad = c.kernel / 2;
    const ConvSpec conv{.dtype = c.dtype,
                        .batch = 8,
                        .in = {c.image, c.image},
                        .in_channels = c.in,
                        .out_channels = c.out,
                        .kernel = {c.kernel, c.kernel},
                        .pad_lo = {pad, pad},
                        .pad_hi = {pad, pad}};
    CudaStep step;
    step.parameters = fmt::format("const {}* a, const {}* b", memory_type(c.dtype), memory_type(c.dtype));
    if (c.pass == ConvPass::filter_grad) {
      const auto made = conv_filter_step(conv, 132, shared);
      ASSERT_TRUE(made);
      EXPECT_LE(made->shared_bytes, shared);
      step.prelude = made->prelude;
      step.parameters += ", float* parts";
      step.body = fmt::format("  {}(block, a, b, parts, shared);\n", made->call);
    } else {
      const auto made = conv_image_step(c.pass, conv, shared);
      ASSERT_TRUE(made);
      EXPECT_LE(made->shared_bytes, shared);
      Builder b;
      const Type type{c.dtype, {8, c.image, c.image, c.pass == ConvPass::forward ? c.out : c.in}};
      ASSERT_TRUE(add_finish(step, *made, b.take(Values{b.input(type)}), 2));
    }
    EXPECT_FALSE(compile_quickly(text_of(step), c.architecture).empty());
  }
}

// Unsupported cases are left to other kernels.
TEST(CudaRowTexts, ConvolutionsInSharedMemoryRejectUnsupportedCases) {
  const ConvSpec plain{.batch = 2, .in = {9, 9}, .in_channels = 16, .out_channels = 16, .kernel = {3, 3}};
  const auto taken = [](ConvSpec conv, const std::function<void(ConvSpec&)>& change) {
    change(conv);
    const int64_t shared = 220 << 10;
    const bool filter = conv_filter_step(conv, 132, shared).has_value();
    EXPECT_EQ(filter, conv_image_step(ConvPass::forward, conv, shared).has_value());
    return filter;
  };
  EXPECT_TRUE(taken(plain, [](ConvSpec&) {}));
  EXPECT_TRUE(taken(plain, [](ConvSpec& c) { c.kernel_dilation = {2, 2}; }));
  EXPECT_FALSE(taken(plain, [](ConvSpec& c) { c.stride = {2, 2}; }));
  EXPECT_FALSE(taken(plain, [](ConvSpec& c) { c.in_dilation = {2, 2}; }));
  EXPECT_FALSE(taken(plain, [](ConvSpec& c) { c.groups = 2; }));
  EXPECT_FALSE(taken(plain, [](ConvSpec& c) { c.dtype = DType::f64; }));
  EXPECT_FALSE(taken(plain, [](ConvSpec& c) {
    c.in_channels = 100;
    c.kernel = {5, 5};
  }));
  EXPECT_FALSE(taken(plain, [](ConvSpec& c) { c.in = {9, 3000}; }));
}

}  // namespace
}  // namespace lockstep
#endif
