// All lanes pass the conformance suite.
#include "plan/lane_conformance.h"

#ifdef LOCKSTEP_WITH_CUDA
#include "hardware/cuda/api.h"
#include "plan/cuda/cuda_lane.h"
#endif
#include "interpreter/interpreter_lane.h"
#include "plan/cpu_lane.h"

namespace lockstep {
namespace {

// Lanes that run at the same time have pools of their own.
Pool& pool_of(int64_t index) {
  static Pool first({.threads = 2}), second({.threads = 2});
  return index == 0 ? first : second;
}

const LaneFactory kCpuLane{"cpu", 2, [](int64_t index) { return std::make_unique<CpuLane>(pool_of(index)); }};
const LaneFactory kInterpreterLane{"interpreter", 2,
                                   [](int64_t index) { return std::make_unique<InterpreterLane>(pool_of(index)); }};
const LaneFactory kInterpreterDeviceLane{
    "interpreter with memory of its own", 2,
    [](int64_t index) { return std::make_unique<InterpreterLane>(pool_of(index), MemorySpace::device); }};

INSTANTIATE_TEST_SUITE_P(Cpu, LaneConformance, testing::Values(kCpuLane));
INSTANTIATE_TEST_SUITE_P(Interpreter, LaneConformance, testing::Values(kInterpreterLane));
INSTANTIATE_TEST_SUITE_P(InterpreterDevice, LaneConformance, testing::Values(kInterpreterDeviceLane));

#ifdef LOCKSTEP_WITH_CUDA
const LaneFactory kCudaLane{"cuda", 1, [](int64_t index) -> std::unique_ptr<Lane> {
                              if (cuda_device_count() == 0) return nullptr;
                              return std::make_unique<CudaLane>(CudaStream::of(index), pool_of(index));
                            }};
INSTANTIATE_TEST_SUITE_P(OnGpu, LaneConformance, testing::Values(kCudaLane));
#endif

}  // namespace
}  // namespace lockstep
