// Runs the blocks of an emulated kernel. Safe from any thread; one grid at a time.
#pragma once

#include <cstddef>
#include <functional>

#include "emulated/block.h"

// The shared memory of a block, under the name that kernels use.
constexpr size_t kSharedBytes = 227 << 10;
extern __thread char shared[kSharedBytes] __attribute__((aligned(128)));

namespace emulated {

// Runs `thread` for each thread of the grid. Up to 256 blocks run concurrently, so that they may wait for each other;
// larger grids run some blocks at a time. Aborts with a message on a deadlock and on writes outside of shared memory.
void run_grid(Index grid, Index block, size_t shared_bytes, const std::function<void()>& thread);

}  // namespace emulated
