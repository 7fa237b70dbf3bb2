// Which GPUs lanes compute on, where there need be none.
#include "lane/gpu_lanes.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "lockstep/error.h"
#ifdef LOCKSTEP_WITH_CUDA
#include "lane/cuda/nccl.h"
#endif

namespace lockstep {
namespace {

using Gpus = std::vector<int>;

TEST(GpuLanes, AreOneForEachGpu) {
  EXPECT_EQ(gpus_of_lanes({0}, 1, {}), Gpus{0});
  EXPECT_EQ(gpus_of_lanes({0}, 8, {}), Gpus{0});  // all devices on one
  EXPECT_EQ(gpus_of_lanes({0, 1, 2, 3}, 4, {}), (Gpus{0, 1, 2, 3}));
  EXPECT_EQ(gpus_of_lanes({2, 3}, 8, {}), (Gpus{2, 3}));
}

TEST(GpuLanes, AreAsManyAsDivideTheDevices) {
  EXPECT_EQ(gpus_of_lanes({0, 1, 2, 3}, 1, {}), Gpus{0});
  EXPECT_EQ(gpus_of_lanes({0, 1, 2, 3}, 2, {}), (Gpus{0, 1}));
  EXPECT_EQ(gpus_of_lanes({0, 1, 2, 3}, 6, {}), (Gpus{0, 1, 2}));
  EXPECT_EQ(gpus_of_lanes({0, 1, 2, 3}, 7, {}), Gpus{0});
  EXPECT_EQ(gpus_of_lanes({4, 5, 6, 7}, 12, {}), (Gpus{4, 5, 6, 7}));
}

TEST(GpuLanes, ShareGpusWhereTheVariableSaysSo) {
  EXPECT_EQ(gpus_of_lanes({0}, 8, "2"), (Gpus{0, 0}));
  EXPECT_EQ(gpus_of_lanes({3, 5}, 1, "4"), (Gpus{3, 3, 5, 5}));
  EXPECT_EQ(gpus_of_lanes({0, 1}, 8, "3"), (Gpus{0, 0, 1}));
  EXPECT_EQ(gpus_of_lanes({0, 1, 2, 3}, 8, "2"), (Gpus{0, 1}));
}

TEST(GpuLanes, GiveAProcessAsManyDevicesUnlessItIsTold) {
  EXPECT_EQ(devices_of_gpus({0, 1, 2}, {}), 3);
  EXPECT_EQ(devices_of_gpus({0}, "2"), 2);
}

TEST(GpuLanes, ThatAreNoNumberAreRefused) {
  for (const char* said : {"0", "65", "two", "2x", "-1"})
    EXPECT_THROWS(
        gpus_of_lanes({0}, 1, said), Error,
        std::string("lanes: LOCKSTEP_CUDA_LANES is \"") + said + "\"; give a number from 1 to 64, or unset it");
  EXPECT_THROWS(devices_of_gpus({0}, "many"), Error, "LOCKSTEP_CUDA_LANES is \"many\"");
}

#ifdef LOCKSTEP_WITH_NCCL
TEST(Nccl, ThatIsThereHasAllThatIsNeeded) {
  if (!cuda_nccl()) GTEST_SKIP() << "libnccl.so.2 is not there";
  int version = 0;
  EXPECT_EQ(cuda_nccl()->ncclGetVersion(&version), ncclSuccess);
  EXPECT_GE(version, 21800);
}
#endif

}  // namespace
}  // namespace lockstep
