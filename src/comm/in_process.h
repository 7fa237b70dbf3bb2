// InProcessComm: a Comm whose ranks are threads of one process. They read and write each other's memory directly;
// nothing is copied in between.
//
// Work on an operation begins when the last rank has started it. The work is divided into tiles, and every waiting rank
// runs tiles until none are left. A small operation is done by the last rank that starts it, before start() returns. So
// one waiting rank can complete an operation alone while the others compute.
//
// Each element is reduced by one thread, in the order of the ranks, so results do not depend on which thread runs a
// tile. 16-bit floats are rounded once.
//
// A group allocates no memory once it has reached its largest number of operations in flight. When a Comm is destroyed
// while other ranks wait for it, they throw CommAborted immediately. Thread safety: as Comm.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"

namespace lockstep {

// Creates a group of `size` ranks in this process and returns one Comm for each rank. Different threads may use
// different Comms. Throws Error unless size is positive.
std::vector<std::unique_ptr<Comm>> in_process_comms(int size, const std::string& name = "world");

}  // namespace lockstep
