// Aligned memory from the system, and the memory and CPUs that this process may use. Safe from any thread.
#pragma once

#include <cstdint>

namespace lockstep {

inline constexpr int64_t kAlignment = 64;

// Returns uninitialized memory aligned to 64 bytes; from 2 MiB on aligned to 2 MiB and marked for huge pages. Returns
// null if the system refuses. REQUIRES: bytes > 0.
void* system_allocate(int64_t bytes);

// Frees memory of system_allocate(). Null is allowed.
void system_free(void* memory);

// Bytes this process may use: the physical memory, or the limit of its cgroup if that is lower. Read once.
int64_t machine_memory();

// CPUs this process may use: those of its affinity mask, or the cgroup's quota (rounded up) if that is lower.
int available_cpus();

}  // namespace lockstep
