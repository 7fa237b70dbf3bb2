// On a GPU (LOCKSTEP_PLATFORM=cuda): what is computed there stays there.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include "lane/cuda/cuda_lane.h"
#include "lockstep/create.h"
#include "lockstep/devices.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"

namespace lockstep {
namespace {

TEST(ArrayOnGpu, OperationsLeaveItThere) {
  if (platform() != Platform::cuda) GTEST_SKIP() << "LOCKSTEP_PLATFORM is not cuda";
  const Array x = ones({3}) + 1;
  const int64_t before = CudaLane::waits();
  const Array y = stack({x, x * x, x + x});
  EXPECT_EQ(CudaLane::waits(), before);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{2, 2, 2, 4, 4, 4, 4, 4, 4}));
}

}  // namespace
}  // namespace lockstep
#endif
