// Lowering: turns tasks of every form into steps (ops/cuda/step.h). Pure functions, safe from any thread.
#pragma once

#include "ops/cuda/task.h"

namespace lockstep::detail {

// Sets the step of the task, and of its members if it has form chain or elements. Returns false, and changes nothing,
// if its choices are not possible.
bool lower(GpuTask& task, const GpuTarget& target);

// The task for fewer multiprocessors, while other tasks use the rest. The task itself if that is not possible or makes
// no difference. REQUIRES: the task is lowered.
GpuTask with_processors(const GpuTask& task, int processors, const GpuTarget& target);

// A row with another division, not lowered.
GpuTask divided(GpuTask row, TaskDivision division, int64_t count);

// Of form ranges. The members are rows; each gets the division TaskDivision::ranges. Values that one member writes and
// another reads stay in shared memory.
bool lower_ranges(GpuTask& task, const GpuTarget& target);
// The largest number of ranges up to `most` that all members support and that is worthwhile; 0: none.
int64_t range_count(const std::vector<GpuTask>& members, int64_t most, const GpuTarget& target);

// Of form exchange. The first member is a product in tiles; the others get the division columns or warps.
bool lower_exchange(GpuTask& task, const GpuTarget& target);

// Text that copies from global to shared memory with all threads, asynchronously; wait_for<0>() waits for it. The
// shared memory is aligned to 16 bytes; the width of a copy suits the alignment of `from`.
std::string copy_to_shared_text(int64_t bytes, const std::string& to, const std::string& from);
// The parameters of a member's function, as untyped pointers: ", const char* q0, char* q1".
std::string untyped_parameters(const CudaStep& step);
// Rounds up to the alignment of areas in shared memory.
inline int64_t up_to_16(int64_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace lockstep::detail
