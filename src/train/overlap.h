// Overlap: what two boxes of one array have in common, when each is laid out dense and row-major in bytes of its own. A
// value: one thread at a time.
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
  // `size` is that of an element.
  Overlap(const IndexBox& a, const IndexBox& b, int64_t size);

  bool done() const { return left_ == 0; }
  // The stretch at hand: where it begins in the bytes of each box, and how many they are. Stretches come in the order
  // of both.
  int64_t in_a() const { return a_ + past_; }
  int64_t in_b() const { return b_ + past_; }
  int64_t bytes() const { return run_ - past_; }
  // Goes on behind the first n bytes of the stretch.
  void skip(int64_t n);

 private:
  int64_t run_ = 0;                   // bytes of each stretch
  int64_t left_ = 0;                  // stretches from this one on
  int64_t a_ = 0, b_ = 0;             // where this one begins
  int64_t past_ = 0;                  // bytes of it that are done with
  std::vector<int64_t> extent_, at_;  // of the dimensions that tell stretches apart
  std::vector<int64_t> a_step_, b_step_;
};

}  // namespace lockstep::detail
