// On a GPU (LOCKSTEP_PLATFORM=cuda): results stay in GPU memory.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "array/gpu_memory.h"
#include "lane/cuda/cuda_lane.h"
#include "lockstep/create.h"
#include "lockstep/devices.h"
#include "lockstep/indexing.h"
#include "lockstep/jit.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"

namespace lockstep {
namespace {

TEST(ArrayOnGpu, OperationsDoNotWaitForTheHost) {
  if (platform() != Platform::cuda) GTEST_SKIP() << "LOCKSTEP_PLATFORM is not cuda";
  const Array x = ones({3}) + 1;
  const int64_t before = CudaLane::wait_count();
  const Array y = stack({x, x * x, x + x});
  EXPECT_EQ(CudaLane::wait_count(), before);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{2, 2, 2, 4, 4, 4, 4, 4, 4}));
}

// A plan of several kernels is captured into a graph when it runs for the second time. Copies, allocations
// and frees by another thread must not become part of the graph.
TEST(ArrayOnGpu, CopiesDuringGraphCaptureByAnotherThread) {
  if (platform() != Platform::cuda) GTEST_SKIP() << "LOCKSTEP_PLATFORM is not cuda";
  std::atomic<bool> done = false;
  std::thread records([&] {
    const Array x = ones({8}) * 3, two = ones({}) * 2;
    for (int i = 0; i < 20; ++i) {
      const auto f = jit([](Array y, const Array& by) {
        for (int k = 0; k < 5; ++k) y = sort(y * by) - 1;
        return y;
      });
      for (int again = 0; again < 3; ++again) EXPECT_EQ(f(x, two).to_vector<float>(), std::vector<float>(8, 65));
    }
    done = true;
  });
  int32_t times = 0;
  for (; !done; ++times) {
    const BufferPtr there = detail::copy_to_gpu(&times, sizeof times);
    EXPECT_EQ(*detail::copy_to_host(*there)->as<int32_t>(), times);
  }
  records.join();
}

// A readback returns the values at the time it was started.
TEST(ArrayOnGpu, ReadbackOverlapsWithComputation) {
  if (!detail::one_gpu_in_use()) GTEST_SKIP() << "LOCKSTEP_PLATFORM is not cuda, or there are several lanes";
  detail::AsyncReadback first, second;
  Array x = ones({3}) + 1;
  EXPECT_FALSE(first.is_pending());
  first.start(x);
  EXPECT_TRUE(first.is_pending());
  x = x * x;
  second.start(stack({x, x}));
  EXPECT_EQ(first.wait(), (std::vector<float>{2, 2, 2}));
  EXPECT_FALSE(first.is_pending());
  first.start(x + 1);  // reuses the pinned memory
  EXPECT_EQ(second.wait(), (std::vector<float>{4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(first.wait(), (std::vector<float>{5, 5, 5}));
  second.start(x);  // destroyed while pending
}

}  // namespace
}  // namespace lockstep
#endif
