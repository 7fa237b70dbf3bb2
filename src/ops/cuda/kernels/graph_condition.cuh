// Kernels that set the conditions of conditional work in captured graphs (CudaStream::GraphCondition). One thread runs
// them.
#pragma once
#include "machine.cuh"

namespace lockstep {

constexpr uint32_t kMostConditions = 32;
struct GraphConditions {
  uint64_t all[kMostConditions];
  uint32_t count;
};

// After a round of a loop: all conditions say whether another round follows. Keeps which of its two buffers a carry is in.
inline void set_loop_conditions(const bool* another, GraphConditions conditions, uint32_t* is_odd, uint32_t odd) {
  *is_odd = odd;
  for (uint32_t i = 0; i < conditions.count; ++i) set_condition(conditions.all[i], *another);
}

// Before branches first, first + 1, ... of `branches`: each has a condition. T is bool or int32_t; an index beyond the
// branches means the nearest.
template <class T>
inline void set_branch_conditions(const T* which, GraphConditions conditions, int32_t first, int32_t branches) {
  const auto asked = static_cast<int32_t>(*which);
  const int32_t wanted = asked < 0 ? 0 : asked < branches ? asked : branches - 1;
  for (uint32_t i = 0; i < conditions.count; ++i)
    set_condition(conditions.all[i], wanted == first + static_cast<int32_t>(i));
}

}  // namespace lockstep
