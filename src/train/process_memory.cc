#include "train/process_memory.h"

#include <sys/resource.h>

namespace lockstep::detail {

int64_t largest_resident_set() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace lockstep::detail
