// Runs the blocks of a kernel.
#pragma once

#include <cstddef>
#include <functional>

#include "emulated/block.h"

// The memory of a block, of which a kernel knows by this name, and how much there is at most.
constexpr size_t kBlockMemory = 227 << 10;
extern __thread char shared[kBlockMemory] __attribute__((aligned(128)));

namespace emulated {

// `thread` is what each thread does. Blocks that may wait for each other run side by side, others some at a time. Ends
// the program with a message where threads wait for what cannot come, or write outside of the block's memory.
void run_grid(Index grid, Index block, size_t shared_bytes, const std::function<void()>& thread);

}  // namespace emulated
