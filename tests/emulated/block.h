// What kernels that are compiled for this machine ask of who runs them. A block is a thread of the operating system,
// and its threads take turns on it.
#pragma once

namespace emulated {

struct Index {
  unsigned x, y, z;
};

// Of the thread that runs.
extern __thread Index thread_index, block_index, block_size, grid_size;

// Lets others run, of this block and of others: for who waits for something that another block does.
void give_way();
// Waits for all threads of the block that have not ended.
void meet_block();
// Waits for all of the warp. The last of them to come calls `last`, before the others go on.
void meet_warp(void (*last)());

// Of the warp, for what its threads give each other.
constexpr int kWarp = 32, kLaneBytes = 64;
char* warp_memory();

// Copies that are on their way: the place is spoilt at once, and the bytes come as late as they may.
void send_for(void* to, const void* from, int bytes, bool inside);
void end_group();
void wait_for_groups(int left);

}  // namespace emulated
