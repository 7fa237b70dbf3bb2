// On a GPU (LOCKSTEP_PLATFORM=cuda): results stay in GPU memory.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "array/lane_memory.h"
#include "lane/cuda/cuda_stream.h"
#include "lockstep/create.h"
#include "lockstep/devices.h"
#include "lockstep/indexing.h"
#include "lockstep/jit.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "plan/lanes.h"

namespace lockstep {
namespace {

TEST(ArrayOnGpu, OperationsDoNotWaitForTheHost) {
  if (platform() != Platform::cuda) GTEST_SKIP() << "LOCKSTEP_PLATFORM is not cuda";
  const Array x = ones({3}) + 1;
  const int64_t before = CudaStream::wait_count();
  const Array y = stack({x, x * x, x + x});
  EXPECT_EQ(CudaStream::wait_count(), before);
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
    const BufferPtr host = allocate(sizeof times);
    *host->as<int32_t>() = times;
    Lane& lane = Lanes::current().main();
    const BufferPtr copy = lane.upload(host);
    EXPECT_NE(copy, host);
    EXPECT_EQ(*lane.download(copy)->as<int32_t>(), times);
  }
  records.join();
}

}  // namespace
}  // namespace lockstep
#endif
