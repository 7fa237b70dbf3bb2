// A barrier for all thread blocks of a kernel, in two parts, so that a block can do other work in between. The
// counter in global memory is zero before the first launch and only grows. Guarantees: see machine.cuh.
#pragma once
#include "machine.cuh"

namespace lockstep {

// Arrives at the barrier: adds this block to the counter `word`, and the number of blocks to `all`, which is the count
// that is reached when all blocks have arrived. Called by all threads.
inline void arrive(uint64_t* word, uint64_t& all) {
  all += gridDim.x;
  __syncthreads();
  if (threadIdx.x == 0) add_release(word);
}
// Waits until all blocks have arrived. Called by all threads.
inline void wait_for_all(uint64_t* word, uint64_t all) {
  if (threadIdx.x == 0) wait_acquire(word, all);
  __syncthreads();
}

}  // namespace lockstep
