// Exit codes that distinguish the process that failed first from those that exit because of it. Thread-safe.
#pragma once

#include <cstdlib>

#include "base/os/environment.h"
#include "lockstep/distributed.h"

namespace lockstep {

// The exit code of the process whose retryable failure is the first cause: LOCKSTEP_FIRST_CAUSE_CODE, or retry_code().
// The podFailurePolicy of an Indexed Job ignores kRetry, with which the other processes exit, and those whose partners
// never came. It must not ignore the first cause: otherwise the job would restart without limit.
inline int first_cause_code() {
  const std::optional<std::string> text = environment_variable("LOCKSTEP_FIRST_CAUSE_CODE");
  const int code = text ? std::atoi(text->c_str()) : 0;
  return code > 0 && code < 128 ? code : distributed::retry_code();
}

}  // namespace lockstep
