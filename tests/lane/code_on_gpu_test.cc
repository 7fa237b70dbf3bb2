// Kernels compiled in the background.
#ifdef LOCKSTEP_WITH_CUDA
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <thread>

#include "base/file.h"
#include "lane/cuda/code.h"
#include "lockstep/error.h"
#include "support/variable.h"

namespace lockstep {
namespace {

class CodeOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  }

  // A distinct kernel, with a name of its own, for each number.
  static std::string adding(int n) {
    return fmt::format(R"(extern "C" __global__ void add_{n}(int* x) {{ x[threadIdx.x] += {n}; }}
)",
                       fmt::arg("n", n));
  }
  static std::vector<int> run(const CudaFunction& function) {
    CudaStream& lane = CudaStream::of(0);
    std::vector<int> values(32);
    std::iota(values.begin(), values.end(), 0);
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(int));
    const BufferPtr device = lane.allocate(bytes);
    lane.to_device(device->data(), values.data(), bytes);
    const void* const x = device->data();
    void* arguments[] = {argument(x)};
    function.launch(lane, 1, 32, arguments);
    lane.to_host(values.data(), device->data(), bytes);
    return values;
  }
  static void expect_adds(const CudaFunction& function, int n) {
    const std::vector<int> values = run(function);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], i + n);
  }

  const TempDir cache_;
  const ScopedVariable variable_{"LOCKSTEP_CACHE_DIR", cache_.path()};
};

TEST_F(CodeOnGpu, GetReturnsTheKernelCompiledInTheBackground) {
  CudaStream& lane = CudaStream::of(0);
  for (int n = 1; n <= 6; ++n) CudaCode::compile_in_background(lane, adding(n), {});
  CudaCode::compile_in_background(lane, adding(3), {});  // already started
  for (int n = 6; n >= 0; --n) expect_adds(CudaCode::get(lane, adding(n), {}), n);
  CudaCode::compile_in_background(lane, adding(3), {});  // already loaded
  expect_adds(CudaCode::get(lane, adding(3), {}), 3);
}

TEST_F(CodeOnGpu, ConcurrentRequestsCompileOnce) {
  CudaStream& lane = CudaStream::of(0);
  CudaCode::compile_in_background(lane, adding(100), {});
  std::vector<CudaFunction> got(4);
  std::vector<std::thread> threads;
  for (CudaFunction& each : got) threads.emplace_back([&] { each = CudaCode::get(lane, adding(100), {}); });
  for (std::thread& thread : threads) thread.join();
  for (const CudaFunction& each : got) expect_adds(each, 100);
  const std::filesystem::directory_iterator files(cache_.path() + "/cuda");
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(CodeOnGpu, CompileErrorIsThrownByGet) {
  CudaStream& lane = CudaStream::of(0);
  const std::string wrong = "extern \"C\" __global__ void f() { nonsense_here; }\n";
  CudaCode::compile_in_background(lane, wrong, {});
  for (int i = 0; i < 2; ++i) {
    try {
      CudaCode::get(lane, wrong, {});
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("nonsense_here"), std::string::npos) << error.what();
    }
  }
  expect_adds(CudaCode::get(lane, adding(200), {}), 200);
}

TEST_F(CodeOnGpu, IsCachedOnDisk) {
  CudaStream& lane = CudaStream::of(0);
  CudaCode::compile_in_background(lane, adding(300), {});
  CudaCode::get(lane, adding(300), {});
  const auto cached = std::filesystem::directory_iterator(cache_.path() + "/cuda")->path();
  EXPECT_EQ(cached.extension(), ".cubin");
  EXPECT_GT(std::filesystem::file_size(cached), 0u);
}

}  // namespace
}  // namespace lockstep
#endif
