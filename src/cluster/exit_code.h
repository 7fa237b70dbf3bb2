// Exit codes that tell the process that failed first from those that ended because of it. Safe from any thread.
#pragma once

#include <cstdlib>

#include "lockstep/distributed.h"

namespace lockstep {

// The exit code of a process that failed by itself where starting again may help: retry_code(), or what
// LOCKSTEP_FIRST_CAUSE_CODE says. The podFailurePolicy of an Indexed Job ignores kRetry, which the other processes end
// with, and must not ignore the first cause: the job would be started again for ever.
inline int first_cause_code() {
  const char* const text = std::getenv("LOCKSTEP_FIRST_CAUSE_CODE");
  const int code = text ? std::atoi(text) : 0;
  return code > 0 && code < 128 ? code : distributed::retry_code();
}

}  // namespace lockstep
