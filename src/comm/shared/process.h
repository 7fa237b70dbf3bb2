// Which process somebody is, and whether it still lives: what ranks of one host leave for each other. Pure values; safe
// from any thread.
#pragma once

#include <cstdint>

namespace lockstep::detail {

// Numbers of processes are used again: the time it started tells one from the next. Plain data, for shared memory.
struct ProcessId {
  int64_t pid = 0;
  uint64_t start_time = 0;     // 0: not known
  uint64_t pid_namespace = 0;  // where `pid` means something; 0: not known

  bool operator==(const ProcessId&) const = default;
};

ProcessId this_process();

// Whether it has ended for certain; false for one that cannot be looked up from here.
bool is_gone(const ProcessId& process);

}  // namespace lockstep::detail
