// Overlap: iterates over the intersection of two boxes of one array. Each box is stored in its own buffer, dense and in
// row-major order. The intersection is visited as runs: byte ranges that are contiguous in both buffers. Not
// thread-safe.
//
//   for (Overlap walk(a, b, 4); !walk.done(); walk.skip(walk.bytes()))
//     std::memcpy(b_bytes + walk.in_b(), a_bytes + walk.in_a(), walk.bytes());
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/sharding.h"

namespace lockstep::detail {

class Overlap {
 public:
  // `size`: bytes of an element.
  Overlap(const IndexBox& a, const IndexBox& b, int64_t size);

  bool done() const { return left_ == 0; }
  // The current run: its offset in the buffer of each box, and its length. Both offsets increase from run to run.
  int64_t in_a() const { return a_ + past_; }
  int64_t in_b() const { return b_ + past_; }
  int64_t bytes() const { return run_ - past_; }
  // Skips n bytes of the current run; moves to the next run at its end. REQUIRES: n <= bytes().
  void skip(int64_t n);

 private:
  int64_t run_ = 0;                   // bytes of each run
  int64_t left_ = 0;                  // remaining runs, including the current one
  int64_t a_ = 0, b_ = 0;             // start of the current run in each buffer
  int64_t past_ = 0;                  // bytes of the current run already skipped
  std::vector<int64_t> extent_, at_;  // of the outer dimensions, over which the runs are enumerated
  std::vector<int64_t> a_step_, b_step_;
};

}  // namespace lockstep::detail
