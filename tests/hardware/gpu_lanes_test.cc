// The assignment of GPUs to lanes. Needs no GPU.
#include "hardware/gpu_lanes.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "lockstep/error.h"
#include "lockstep/runtime.h"
#ifdef LOCKSTEP_WITH_CUDA
#include "hardware/cuda/nccl.h"
#endif

namespace lockstep {
namespace {

using Gpus = std::vector<int>;

TEST(GpuLanes, OneLanePerGpuByDefault) {
  EXPECT_EQ(assign_gpus_to_lanes({0}, 1, {}), Gpus{0});
  EXPECT_EQ(assign_gpus_to_lanes({0}, 8, {}), Gpus{0});  // all devices on one GPU
  EXPECT_EQ(assign_gpus_to_lanes({0, 1, 2, 3}, 4, {}), (Gpus{0, 1, 2, 3}));
  EXPECT_EQ(assign_gpus_to_lanes({2, 3}, 8, {}), (Gpus{2, 3}));
}

TEST(GpuLanes, LaneCountDividesTheDevices) {
  EXPECT_EQ(assign_gpus_to_lanes({0, 1, 2, 3}, 1, {}), Gpus{0});
  EXPECT_EQ(assign_gpus_to_lanes({0, 1, 2, 3}, 2, {}), (Gpus{0, 1}));
  EXPECT_EQ(assign_gpus_to_lanes({0, 1, 2, 3}, 6, {}), (Gpus{0, 1, 2}));
  EXPECT_EQ(assign_gpus_to_lanes({0, 1, 2, 3}, 7, {}), Gpus{0});
  EXPECT_EQ(assign_gpus_to_lanes({4, 5, 6, 7}, 12, {}), (Gpus{4, 5, 6, 7}));
}

TEST(GpuLanes, VariableMakesLanesShareGpus) {
  EXPECT_EQ(assign_gpus_to_lanes({0}, 8, "2"), (Gpus{0, 0}));
  EXPECT_EQ(assign_gpus_to_lanes({3, 5}, 1, "4"), (Gpus{3, 3, 5, 5}));
  EXPECT_EQ(assign_gpus_to_lanes({0, 1}, 8, "3"), (Gpus{0, 0, 1}));
  EXPECT_EQ(assign_gpus_to_lanes({0, 1, 2, 3}, 8, "2"), (Gpus{0, 1}));
}

TEST(GpuLanes, DefaultDeviceCountIsTheLaneCount) {
  EXPECT_EQ(default_gpu_device_count({0, 1, 2}, {}), 3);
  EXPECT_EQ(default_gpu_device_count({0}, "2"), 2);
}

TEST(GpuLanes, RejectsNonNumericCount) {
  for (const char* value : {"0", "65", "two", "2x", "-1"})
    EXPECT_THROWS(
        assign_gpus_to_lanes({0}, 1, value), Error,
        std::string("lanes: LOCKSTEP_CUDA_LANES is \"") + value + "\"; set it to a number from 1 to 64, or unset it");
  EXPECT_THROWS(default_gpu_device_count({0}, "many"), Error, "LOCKSTEP_CUDA_LANES is \"many\"");
}

TEST(GpuLanes, EachRuntimeHasItsOwnGpus) {
  Runtime first, second;
  {
    const RuntimeScope scope(first);
    set_assigned_gpus({2, 3});
  }
  {
    const RuntimeScope scope(second);
    EXPECT_FALSE(assigned_gpus());
    set_assigned_gpus({}, "none is left");
  }
  const RuntimeScope scope(first);
  EXPECT_EQ(assigned_gpus()->gpus, (Gpus{2, 3}));
  EXPECT_EQ(assigned_gpus()->why_none, "");
}

#ifdef LOCKSTEP_WITH_NCCL
TEST(Nccl, LoadedLibraryIsNewEnough) {
  if (!cuda_nccl()) GTEST_SKIP() << "cannot load libnccl.so.2";
  int version = 0;
  EXPECT_EQ(cuda_nccl()->ncclGetVersion(&version), ncclSuccess);
  EXPECT_GE(version, 21800);
}
#endif

}  // namespace
}  // namespace lockstep
