// Transfer: one rank's part of one operation, cut into rounds. In a round every rank puts some bytes into a slot of its
// own, all of the same size, and then takes from the slots of all others what is meant for it. What lies where follows
// from what the ranks agreed on, so slots need no tables. A value, used by one thread at a time.
//
//   all_reduce       small: everything, and everybody combines all.
//                    large: a round's elements are cut into a share for each rank; a rank combines its own share of
//                    what others put, and puts the result some rounds later, from where the others take it.
//   reduce_scatter, all_to_all    a piece for every other rank
//   all_gather, permute, broadcast    a piece for whoever wants it
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/operation.h"

namespace lockstep::detail {

class Transfer {
 public:
  // `room` is the size of a slot. The operation must stay as it is.
  void begin(const Operation& operation, int rank, int size, int64_t room);

  const Operation& operation() const { return operation_; }

  // How many rounds there are, at least one. What a rank knows alone may be less in all_to_all: then it is the greatest
  // of what they know.
  int64_t rounds() const { return rounds_; }
  void set_rounds(int64_t rounds) { rounds_ = rounds; }

  // How many rounds must have been taken before this one can be put.
  int64_t needs_taken(int64_t round) const { return lag_ == 0 ? 0 : round - lag_ + 1; }

  // What this rank gives in a round. REQUIRES: the rounds before are put.
  void put(int64_t round, std::byte* slot) const;

  // Takes what this rank is given; slots[r] is that of rank r, and inputs is room for as many pointers. REQUIRES: this
  // rank has put the round, the rounds before are taken.
  void take(int64_t round, std::span<const std::byte* const> slots, std::span<const void*> inputs) const;

 private:
  struct Part {
    int64_t begin, count;
  };
  // The part of `total` elements that is in a round, when there are step_ in each.
  Part part(int64_t round, int64_t total) const;
  Part share(int64_t round, int rank) const;
  std::byte* at(void* data, int64_t index) const { return static_cast<std::byte*>(data) + index * element_; }
  const std::byte* at(const void* data, int64_t index) const {
    return static_cast<const std::byte*>(data) + index * element_;
  }
  // Where in a slot of rank `from` that has a place for each other rank that of `to` is.
  int64_t place(int from, int to) const { return (to < from ? to : to - 1) * step_ * element_; }
  int64_t source_of(int rank) const;
  int64_t destination_of(int rank) const;
  void copy(std::byte* to, const std::byte* from, int64_t count) const;
  void take_whole(std::span<const std::byte* const> slots, std::span<const void*> inputs) const;
  void take_shares(int64_t round, std::span<const std::byte* const> slots, std::span<const void*> inputs) const;

  Operation operation_;
  int rank_ = 0, size_ = 1;
  int64_t element_ = 1;  // bytes
  int64_t step_ = 1;     // elements of a piece (or share) in a round
  int64_t inputs_ = 0;   // all_reduce: rounds in which there is input
  int64_t lag_ = 0;      // and how much later their results are put; 0: they are not
  int64_t rounds_ = 1;
};

}  // namespace lockstep::detail
