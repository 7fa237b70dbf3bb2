// Matrix products by cuBLASLt, and autotuning of its algorithms.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/file.h"
#include "base/throws.h"
#include "lane/cuda/gemm_cuda.h"
#include "support/emulated.h"
#include "support/variable.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPlain = 1, kSlow = 2;  // algorithms of the emulated GPU

// Caches choices in a temporary folder.
class GemmOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
    clear_gemm_autotune_cache();
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    const fs::path folder = fs::path(folder_.path()) / "cuda";
    if (!fs::exists(folder)) return out;
    for (const auto& each : fs::directory_iterator(folder))
      if (each.path().extension() == ".gemm") out.push_back(each.path());
    return out;
  }

  TempDir folder_;

 private:
  const ScopedVariable cache_{"LOCKSTEP_CACHE_DIR", folder_.path()};
};

// [m, k] x [k, n] of small integers, whose sums are exact.
struct Product {
  CudaStream& lane = CudaStream::local();
  GemmSpec spec{
      .m = 64, .n = 48, .k = 32, .lda = 32, .ldb = 48, .ldc = 48, .stride_a = 0, .stride_b = 0, .stride_c = 0};
  std::vector<float> a = numbers(spec.m * spec.k, 1), b = numbers(spec.k * spec.n, 2);
  BufferPtr on_a = on_gpu(a), on_b = on_gpu(b), on_c = lane.allocate(spec.m * spec.n * 4);

  static std::vector<float> numbers(int64_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<float> out(static_cast<size_t>(count));
    for (float& each : out) each = static_cast<float>(random() % 9) - 4;
    return out;
  }
  BufferPtr on_gpu(const std::vector<float>& host) const {
    BufferPtr out = lane.allocate(static_cast<int64_t>(host.size()) * 4);
    lane.to_device(out->data(), host.data(), out->size());
    return out;
  }
  CudaGemm gemm(double min_operations = 0) const {
    return {lane, spec, CudaMath::tf32, {.min_operations = min_operations, .seconds = 10}};
  }
  void run(const CudaGemm& gemm) const { gemm.run(on_a->data(), on_b->data(), on_c->data()); }
  void expect_right() const {
    std::vector<float> got(static_cast<size_t>(spec.m * spec.n));
    lane.to_host(got.data(), on_c->data(), on_c->size());
    for (int64_t i = 0; i < spec.m; ++i)
      for (int64_t j = 0; j < spec.n; ++j) {
        float sum = 0;
        for (int64_t k = 0; k < spec.k; ++k)
          sum += a[static_cast<size_t>(i * spec.k + k)] * b[static_cast<size_t>(k * spec.n + j)];
        ASSERT_EQ(got[static_cast<size_t>(i * spec.n + j)], sum) << i << ", " << j;
      }
  }
};

TEST_F(GemmOnGpu, BatchesThatCublasltCannotCountAreRefused) {
  Product product;
  product.spec.batch = int64_t{1} << 31;
  EXPECT_THROWS(product.gemm(1e12), Error,
                "matrix product: a batch of 2147483648 exceeds 2^31 - 1; split the operands");
}

TEST_F(GemmOnGpu, SmallProductsAreNotAutotuned) {
  const Product product;
  const auto before = emulated("emulated_products");
  product.run(product.gemm(1e9));
  product.expect_right();
  EXPECT_TRUE(files().empty());
  if (before) {
    EXPECT_EQ(emulated("emulated_products"), *before + 1);
  }
}

TEST_F(GemmOnGpu, LargeProductUsesTheFastestAlgorithm) {
  const Product product;
  const CudaGemm gemm = product.gemm();
  const int64_t waits = CudaStream::wait_count();
  product.run(gemm);
  EXPECT_EQ(CudaStream::wait_count(), waits) << "a program that waits cannot be captured";
  product.expect_right();
  EXPECT_EQ(files().size(), 1u);
  const auto before = emulated("emulated_products");
  product.run(gemm);
  product.expect_right();
  if (!before) return;
  EXPECT_EQ(emulated("emulated_products"), *before + 1) << "autotuned again";
  EXPECT_EQ(emulated("emulated_algorithm"), kPlain);
}

TEST_F(GemmOnGpu, ChoiceIsCachedInMemoryAndOnDisk) {
  const Product product;
  product.run(product.gemm());
  ASSERT_EQ(files().size(), 1u);
  for (const bool in_memory : {true, false}) {
    if (!in_memory) clear_gemm_autotune_cache();
    const auto before = emulated("emulated_products");
    product.run(product.gemm());
    product.expect_right();
    if (!before) continue;
    EXPECT_EQ(emulated("emulated_products"), *before + 1) << in_memory;
    EXPECT_EQ(emulated("emulated_algorithm"), kPlain);
  }
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(GemmOnGpu, DamagedCacheFileIsReplaced) {
  const Product product;
  product.run(product.gemm());
  ASSERT_EQ(files().size(), 1u);
  const fs::path file = files()[0];
  const auto content = [&] {
    std::ifstream in(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string intact = content();
  for (const std::string& damaged :
       {std::string(), intact.substr(0, 40), std::string(intact.size(), 'f'), intact + "0"}) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << damaged;
    clear_gemm_autotune_cache();
    const auto before = emulated("emulated_products");
    product.run(product.gemm());
    product.expect_right();
    if (before) {
      EXPECT_GT(emulated("emulated_products"), *before + 1) << damaged;
      EXPECT_EQ(content(), intact);
    } else {
      EXPECT_EQ(content().size(), intact.size());
    }
  }
}

TEST_F(GemmOnGpu, DoesNotAutotuneDuringCapture) {
  const Product product;
  const CudaGemm gemm = product.gemm();
  const cudaGraphExec_t graph = product.lane.capture([&] { product.run(gemm); });
  product.lane.replay(graph);
  product.expect_right();
  EXPECT_TRUE(files().empty());
  if (const auto last = emulated("emulated_algorithm")) {
    EXPECT_EQ(*last, kSlow);
  }
  product.run(gemm);  // now it autotunes
  EXPECT_EQ(files().size(), 1u);
  product.lane.destroy_graph(graph);
}

}  // namespace
}  // namespace lockstep
#endif
