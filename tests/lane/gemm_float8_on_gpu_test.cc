// Products of 8-bit floats by cuBLASLt: where they are used, their scales, and that wrong ones are not used.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <vector>

#include "lane/cuda/gemm_cuda.h"
#include "support/emulated.h"
#include "support/variable.h"

namespace lockstep {
namespace {

class Float8GemmOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
    const CudaInfo& info = CudaStream::local().info();
    if (info.major * 10 + info.minor < 89) GTEST_SKIP() << info.name << " has no products of 8-bit floats";
  }
};

GemmSpec spec_of(int64_t m, int64_t n, int64_t k, DType dtype = DType::f8_e4m3) {
  return {.dtype = dtype,
          .out = DType::f32,
          .m = m,
          .n = n,
          .k = k,
          .transpose_b = true,
          .lda = k,
          .ldb = k,
          .ldc = n,
          .stride_a = 0,
          .stride_b = 0,
          .stride_c = 0};
}

BufferPtr on_gpu(const void* from, int64_t bytes) {
  CudaStream& lane = CudaStream::local();
  BufferPtr out = lane.allocate(bytes);
  lane.to_device(out->data(), from, bytes);
  return out;
}

TEST_F(Float8GemmOnGpu, MultipliesByBothScales) {
  CudaStream& lane = CudaStream::local();
  const GemmSpec spec = spec_of(16, 32, 48);
  const std::optional<CudaGemm> gemm = CudaGemm::float8(lane, spec, DType::f8_e4m3);
  ASSERT_TRUE(gemm);
  std::vector<Float8E4M3> a(16 * 48, Float8E4M3(1.5f)), b(32 * 48, Float8E4M3(0.5f));
  b[47] = Float8E4M3(-2.0f);  // the last element of the first row
  const float scales[] = {2, 0, 0, 0, 0.25f};
  const BufferPtr on_a = on_gpu(a.data(), 16 * 48), on_b = on_gpu(b.data(), 32 * 48),
                  on_scales = on_gpu(scales, sizeof scales), on_c = lane.allocate(16 * 32 * 4);
  const auto* const scale = on_scales->as<float>();
  gemm->run(on_a->data(), on_b->data(), on_c->data(), {.scale_a = scale, .scale_b = scale + 4});
  std::vector<float> c(16 * 32);
  lane.to_host(c.data(), on_c->data(), on_c->size());
  for (size_t i = 0; i < c.size(); ++i) EXPECT_EQ(c[i], i % 32 == 0 ? 0.5f * (47 * 0.75f - 3) : 0.5f * 48 * 0.75f) << i;
}

TEST_F(Float8GemmOnGpu, OtherProductsAreLeftToTheCaller) {
  CudaStream& lane = CudaStream::local();
  EXPECT_FALSE(CudaGemm::float8(lane, spec_of(16, 32, 40), DType::f8_e4m3));
  EXPECT_FALSE(CudaGemm::float8(lane, spec_of(8, 32, 48), DType::f8_e4m3));
  EXPECT_FALSE(CudaGemm::float8(lane, spec_of(16, 31, 48), DType::f8_e4m3));
  EXPECT_FALSE(CudaGemm::float8(lane, spec_of(16, 32, 48, DType::f8_e5m2), DType::f8_e5m2));
}

// The emulated library then ignores the scales.
TEST_F(Float8GemmOnGpu, WrongProductsAreNotUsed) {
  if (!emulated("emulated_products")) GTEST_SKIP() << "needs the emulated GPU";
  const ScopedVariable wrong("LOCKSTEP_EMULATED_SCALES", "ignored");
  EXPECT_FALSE(CudaGemm::float8(CudaStream::local(), spec_of(16, 32, 48, DType::f8_e5m2), DType::f8_e4m3));
}

}  // namespace
}  // namespace lockstep
#endif
