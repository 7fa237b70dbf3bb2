// InProcessCollective: the n-th operation of all ranks of an in-process group. Ranks join it one by one; when the last
// has joined, its work is divided into tiles, which any thread may run.
//
// Thread safety: join(), has_joined(), operation() and reset() are called with the lock of the group held; the other
// methods are safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "comm/operation.h"

namespace lockstep::detail {

class InProcessCollective {
 public:
  explicit InProcessCollective(int size);

  // Reuses the object for operation `number`. REQUIRES: all ranks have left it, or none has joined.
  void reset(int64_t number);

  int64_t number() const { return number_; }
  bool has_joined(int rank) const { return has_joined_[static_cast<size_t>(rank)] != 0; }
  const Operation& operation(int rank) const { return operations_[static_cast<size_t>(rank)]; }
  // Adds a rank. Returns whether it was the last one; all_joined() then holds and the tiles can be run.
  bool join(int rank, const Operation& operation);

  // All ranks have joined: the operation will complete.
  bool all_joined() const { return all_joined_.load(); }
  // All tiles have run.
  bool done() const { return done_.load(); }
  // Whether the work is too small to be divided between threads.
  bool is_single_tile() const { return tiles_ <= 1; }

  // Runs tiles until none are left. Returns whether this thread ran the last one: done() then holds, and the caller
  // must wake sleeping threads. REQUIRES: all_joined().
  bool run_tiles();

  // A rank leaves the operation. Returns whether it was the last one.
  bool leave() { return left_.fetch_add(1) + 1 == static_cast<int>(operations_.size()); }

 private:
  void plan_tiles();
  void run(int64_t begin, int64_t end);
  void all_gather(int64_t begin, int64_t end);
  void reduce_scatter(int64_t begin, int64_t end);
  void all_to_all(int64_t begin, int64_t end);
  void permute(int64_t begin, int64_t end);
  void broadcast(int64_t begin, int64_t end);

  int64_t number_ = -1;
  int joined_ = 0;
  std::vector<char> has_joined_;
  std::vector<Operation> operations_;  // by rank
  std::vector<const void*> in_;        // by rank
  std::vector<void*> out_;             // by rank

  // The work is a range of elements, divided into equal tiles. The kind of operation determines what an element is.
  int64_t elements_ = 0;
  int64_t tile_ = 1;  // elements per tile
  int64_t tiles_ = 0;

  std::atomic<bool> all_joined_{false};
  std::atomic<bool> done_{false};
  std::atomic<int> left_{0};
  alignas(64) std::atomic<int64_t> next_{0};      // the next tile to run
  alignas(64) std::atomic<int64_t> finished_{0};  // tiles
};

}  // namespace lockstep::detail
