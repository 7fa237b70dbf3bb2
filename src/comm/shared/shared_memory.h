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

// The memory of a group of `size` ranks, with `bytes_per_rank` bytes of slots; 0: up to 1 MiB per rank, and about 8 MiB
// in total. `name` is that of the group in messages. Throws IoError when there is not enough memory, and Error for
// invalid sizes.
std::shared_ptr<detail::Segment> create_shared_memory(int size, int64_t bytes_per_rank = 0,
                                                      const std::string& name = "world");

// The address by which other processes of this user open the memory, while this process holds it. It is no secret.
std::string address_of(const detail::Segment& segment);

// Opens the memory of another process of this host. Throws IoError when that process has ended, or is of another user,
// or in another pid or user namespace; Error when the text is not the address of such memory.
std::shared_ptr<detail::Segment> open_shared_memory(const std::string& address, const std::string& name = "world");

struct SharedMemoryOptions {
  std::shared_ptr<detail::Segment> memory;  // created by the process of rank 0, opened by the others
  int rank = 0;
  int size = 1;
  std::chrono::nanoseconds timeout = Comm::kDefaultTimeout;  // for joining; then the timeout of the Comm
  std::string name = "world";
};

// Returns when all ranks have called it with the same memory. Throws Error for invalid options, a rank that is in use,
// or ranks that disagree on the size; CommTimeout, which names the missing ranks; CommAborted if another rank gave up.
std::unique_ptr<Comm> shared_memory_comm(const SharedMemoryOptions& options);

}  // namespace lockstep
