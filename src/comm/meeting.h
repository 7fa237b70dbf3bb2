// Meeting: where the n-th operations of all ranks of an in-process group come together, and the work on them, cut into
// tiles that any thread may take.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "comm/operation.h"

namespace lockstep::detail {

class Meeting {
 public:
  explicit Meeting(int size);

  // Forgets what was and becomes the meeting of operation `number`. REQUIRES: no rank is in it.
  void reset(int64_t number);

  int64_t number() const { return number_; }
  // Under the group's lock.
  bool came(int rank) const { return came_[static_cast<size_t>(rank)] != 0; }
  const Operation& operation(int rank) const { return operations_[static_cast<size_t>(rank)]; }
  // Whether this was the last rank to come; then the work is cut and open().
  bool join(int rank, const Operation& operation);

  // Everybody came: the work may be done, and will be.
  bool open() const { return open_.load(); }
  // All the work is done.
  bool done() const { return done_.load(); }
  // Whether the work is too small to be worth sharing.
  bool small() const { return tiles_ <= 1; }

  // Takes tiles until there are none left, and returns whether this thread did the last one (then done() holds, and
  // those who sleep should be told). REQUIRES: open().
  bool help();

  // Counts a rank out; whether it was the last.
  bool leave() { return left_.fetch_add(1) + 1 == static_cast<int>(operations_.size()); }

 private:
  void cut();
  void run(int64_t begin, int64_t end);
  void gather(int64_t begin, int64_t end);
  void reduce_pieces(int64_t begin, int64_t end);
  void exchange(int64_t begin, int64_t end);
  void permute(int64_t begin, int64_t end);
  void broadcast(int64_t begin, int64_t end);

  int64_t number_ = -1;
  int joined_ = 0;
  std::vector<char> came_;
  std::vector<Operation> operations_;
  std::vector<const void*> in_;  // of all ranks
  std::vector<void*> out_;

  // The work as a row of elements, cut into equal tiles; what an element is depends on the kind of operation.
  int64_t elements_ = 0;
  int64_t tile_ = 1;
  int64_t tiles_ = 0;

  std::atomic<bool> open_{false};
  std::atomic<bool> done_{false};
  std::atomic<int> left_{0};
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<int64_t> finished_{0};
};

}  // namespace lockstep::detail
