// Ranks that are processes (or threads) of one host: what they give each other goes through a segment of shared memory,
// in pieces, while the pieces before are being combined. Nothing is allocated once a group has seen as many operations
// under way as it will. The segment has no name, so nothing is left behind however and whenever ranks end.
//
// A rank that is killed is found out within about a second by those who wait for it, and named. One that is stopped
// runs into the timeout; after abort() an operation that it holds up is given up, also where all had started it. Values
// are combined in the order of the ranks; 16-bit floats are rounded once.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/comm.h"

namespace lockstep {

namespace detail {
class Segment;
}

struct SharedMemoryOptions {
  std::string key;  // known to the ranks of this group, and to nobody else, ever
  int rank = 0;
  int size = 1;
  std::chrono::nanoseconds timeout = Comm::kDefaultTimeout;  // for the others to come, and then that of the Comm
  std::string name = "world";
  int64_t bytes_per_rank = 0;                     // what rank 0 allocates for each; 0: up to 1 MiB, in all about 8
  std::shared_ptr<detail::Segment> segment = {};  // of rank 0: from reserve_shared_memory()
};

// Allocates what rank 0 of such a group needs, before the others come. Throws IoError when there is no room, Error for
// options that make no sense or a key that is in use. REQUIRES: more than one rank.
std::shared_ptr<detail::Segment> reserve_shared_memory(const SharedMemoryOptions& options);

// Returns when all ranks have called it with the same key. Throws Error for options that make no sense, a key or rank
// that is in use, or ranks that disagree on the size; IoError when there is no room; CommTimeout, naming
// who is missing; CommAborted when one of them gave up.
std::unique_ptr<Comm> shared_memory_comm(const SharedMemoryOptions& options);

}  // namespace lockstep
