// Ranks that are threads of one process: they read and write each other's memory directly, nothing is copied on the
// way.
//
// Work on an operation begins when the last rank has started it. It is cut into tiles, and every rank that waits takes
// tiles until there are none; a small operation is done by the rank that comes last, before its start returns. So one
// rank that waits can finish an operation alone while the others compute. Each element is combined by one thread, in
// the order of the ranks, so results do not depend on who does what. 16-bit floats are rounded once.
//
// Nothing is allocated once a group has seen as many operations under way as it will. A Comm that is destroyed while
// others wait for its rank makes them throw CommAborted at once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"

namespace lockstep {

// A group of `size` ranks in this process, one Comm for each; each may be used by a thread of its own. Throws Error
// unless size is positive.
std::vector<std::unique_ptr<Comm>> in_process_comms(int size, const std::string& name = "world");

}  // namespace lockstep
