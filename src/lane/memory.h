// Aligned memory straight from the system, and how much of it there is. All functions may be called from any thread.
#pragma once

#include <cstdint>

namespace lockstep {

inline constexpr int64_t kAlignment = 64;

// Uninitialised memory aligned to 64 bytes; from 2 MiB on aligned to 2 MiB and marked for huge pages. Null when the
// system refuses. REQUIRES: bytes > 0.
void* system_allocate(int64_t bytes);

// Gives back what system_allocate returned. Null is allowed.
void system_free(void* memory);

// Bytes this process may use: the physical memory, or the limit of its cgroup where that is lower. Read once.
int64_t machine_memory();

// CPUs this process may use at once: those of its affinity mask, or the cgroup's quota (rounded up) where that is
// lower.
int available_cpus();

}  // namespace lockstep
