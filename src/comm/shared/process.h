// ProcessId: identifies a process, and is_gone() tells whether it has ended. Ranks of one host store it in shared
// memory. Thread safety: plain values and pure functions.
#pragma once

#include <cstdint>

namespace lockstep::detail {

// The start time distinguishes processes that reuse a pid. Plain data, for shared memory.
struct ProcessId {
  int64_t pid = 0;
  uint64_t start_time = 0;     // 0: unknown
  uint64_t pid_namespace = 0;  // the namespace of `pid`; 0: unknown

  bool operator==(const ProcessId&) const = default;
};

ProcessId this_process();

// Whether the process has certainly ended; false when that cannot be determined, as in another pid namespace.
bool is_gone(const ProcessId& process);

}  // namespace lockstep::detail
