// The functions that emulated kernels call. A thread block is a thread of the operating system; the threads of the
// block are fibers that take turns on it.
#pragma once

namespace emulated {

struct Index {
  unsigned x, y, z;
};

// Of the current thread of the kernel.
extern __thread Index thread_index, block_index, block_size, grid_size;

// Lets other threads and blocks run. Call it while waiting for another block.
void yield();
// Waits for all threads of the block that have not ended.
void sync_block();
// Waits for all threads of the warp. The last to arrive calls `last` before the others continue.
void sync_warp(void (*last)());

// Memory of the warp, through which its threads exchange values.
constexpr int kWarp = 32, kLaneBytes = 64;
char* warp_memory();

// Asynchronous copies in groups. The destination is filled with NaN at once; the bytes arrive as late as allowed.
void start_copy(void* to, const void* from, int bytes, bool inside);
void commit_copies();
// Waits until at most `left` groups are pending.
void wait_for_copies(int left);

// Asynchronous products in groups. `finish` is called with a copy of the product when a thread waits for it.
void start_product(void (*finish)(const void*), const void* product, unsigned long bytes);
void commit_products();
// Waits until at most `left` groups are pending.
void wait_for_products(int left);

}  // namespace emulated
