// SharedMemoryComm: a Comm whose ranks are processes (or threads) of one host. Data goes through slots in a segment of
// shared memory, in rounds, so that copying one round overlaps with reducing another. Values are reduced in the order
// of the ranks; 16-bit floats are rounded once. A group allocates no memory once it has reached its largest number of
// operations in flight. The segment has no name, so nothing is left behind, however and whenever ranks end.
//
// Failures. When a rank is killed, the ranks that wait for it notice within about a second and name it. A rank that is
// stopped (SIGSTOP) causes a timeout. After abort(), an operation that a rank blocks is given up, even when all ranks
// have started it.
//
// Thread safety: as Comm; the functions below are safe from any thread.
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
  std::string key;  // the same for all ranks of the group, never used by another group, and not known to others
  int rank = 0;
  int size = 1;
  std::chrono::nanoseconds timeout = Comm::kDefaultTimeout;  // for joining; then the timeout of the Comm
  std::string name = "world";
  int64_t bytes_per_rank = 0;                     // of slots; 0: up to 1 MiB per rank, and about 8 MiB in total
  std::shared_ptr<detail::Segment> segment = {};  // rank 0: from reserve_shared_memory()
};

// Allocates the segment for rank 0 before the other ranks join. Throws IoError when there is not enough memory, and
// Error for invalid options or a key that is in use. REQUIRES: more than one rank.
std::shared_ptr<detail::Segment> reserve_shared_memory(const SharedMemoryOptions& options);

// Returns when all ranks have called it with the same key. Throws Error for invalid options, a key or rank that is in
// use, or ranks that disagree on the size; IoError when there is not enough memory; CommTimeout, which names the
// missing ranks; CommAborted when another rank gave up.
std::unique_ptr<Comm> shared_memory_comm(const SharedMemoryOptions& options);

}  // namespace lockstep
