// Convolutions on a GPU in which a thread block holds complete windows (ops/cuda/conv_image_text.h), with epilogues.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <random>

#include "hardware/cuda/api.h"
#include "ops/conv.h"
#include "ops/cuda/conv_choice.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"
#include "rows/on_gpu.h"
#include "support/brief.h"

namespace lockstep {
namespace {

struct Images {
  int64_t batch, h, w, in, out, kh, kw;
  std::array<int64_t, 4> pad;
  int64_t dilation = 1;
};

// With small integers every product and sum is exact, also in TF32 and in 16 bits.
TEST(ConvsOnGpu, AreExactOnIntegers) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  set_conv_backend(ConvBackend::own);
  std::mt19937 random(20261116);
  const int64_t many = brief(16, 3);
  std::vector<Images> all = {{many, 28, 28, 1, 32, 5, 5, {2, 2, 2, 2}}, {many, 14, 14, 32, 64, 5, 5, {2, 2, 2, 2}},
                             {3, 9, 7, 16, 8, 3, 3, {1, 1, 1, 1}},      {2, 30, 40, 8, 72, 3, 2, {0, 1, 2, 0}},
                             {1, 5, 5, 3, 16, 3, 3, {0, 0, 0, 0}},      {5, 12, 12, 48, 24, 3, 3, {1, 1, 1, 1}, 2},
                             {2, 6, 200, 16, 16, 1, 5, {0, 0, 2, 2}},   {2, 17, 17, 128, 96, 3, 3, {1, 1, 1, 1}},
                             {7, 1, 1, 64, 128, 1, 1, {0, 0, 0, 0}}};
  const auto below = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(random); };
  for (int i = 0; i < 6; ++i) {
    const int64_t k = below(4);
    all.push_back(
        {below(5), k + below(20), k + below(20), 8 * below(6), 8 * below(9), k, k, {below(k) - 1, 0, below(k) - 1, 1}});
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Images& c : all) {
      SCOPED_TRACE(fmt::format("{} images of {} x {}, {} to {} channels, windows of {} x {}, {}", c.batch, c.h, c.w,
                               c.in, c.out, c.kh, c.kw, name(dtype)));
      Builder b;
      const ConvOptions options{.pad = c.pad, .rhs_dilation = {c.dilation, c.dilation}};
      const Value x = b.input({dtype, {c.batch, c.h, c.w, c.in}}), w = b.input({dtype, {c.kh, c.kw, c.in, c.out}});
      const Value bias = b.input({dtype, {c.out}});
      const Value y = conv2d(x, w, options);
      const Value dy = b.input(y.type());
      const Value made = maximum(y + broadcast(bias, y.type().shape, {3}), zeros_like(y));
      const Program program = b.take(Values{made, conv2d_input_grad(dy, w, x.type().shape, options),
                                            conv2d_filter_grad(x, dy, w.type().shape, options)});
      HostArrays in;
      for (const Type& type : program.input_types()) in.push_back(small_integers(type, random()));
      const HostArrays got = planned_on_gpu(program, in), wanted = eager(program, in);
      const char* const names[] = {"forward", "of the image", "of the filter"};
      for (size_t o = 0; o < got.size(); ++o) EXPECT_EQ(got[o].values(), wanted[o].values()) << names[o];
    }
  set_conv_backend(ConvBackend::fastest);
}

}  // namespace
}  // namespace lockstep
#endif
