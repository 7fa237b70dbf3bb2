// Transfer: one rank's part of one operation, divided into rounds. In each round every rank writes into a slot of its
// own and then reads its data from the slots of all other ranks. The layout of a slot follows from the operation that
// all ranks agreed on, so slots contain no tables:
//
//   all_reduce, small   one round: the complete input. Every rank reduces the inputs of all ranks.
//   all_reduce, large   a round covers `size` shares of step_ elements, one for each rank:
//
//                         slot:  [ result of the own share of round k - lag_ | inputs for every other rank's share ]
//
//                       A rank reduces its own share of round k, and writes the result lag_ rounds later. The other
//                       ranks read it from there.
//   reduce_scatter, all_to_all         a piece for every other rank
//   all_gather, permute, broadcast     one piece for all readers
//
// Thread safety: a value; const functions are safe from any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/operation.h"

namespace lockstep::detail {

class Transfer {
 public:
  // `room` is the number of data bytes in a slot. The lists of the operation must outlive the transfer.
  void begin(const Operation& operation, int rank, int size, int64_t room);

  const Operation& operation() const { return operation_; }

  // The number of rounds, at least one. In all_to_all ranks may compute different numbers: the largest is used.
  int64_t rounds() const { return rounds_; }
  void set_rounds(int64_t rounds) { rounds_ = rounds; }

  // The rounds before this one can be written when this rank has read `read` rounds.
  int64_t writable_end(int64_t read) const { return lag_ == 0 ? rounds_ : std::min(rounds_, read + lag_); }

  // The number of bytes that this rank copies or reduces to write and read a round, about.
  int64_t round_bytes() const;

  // The elements of a round may be divided into pieces, which any threads write or read, in parallel.
  struct Piece {
    int64_t index = 0, count = 1;
  };

  // Writes a piece of this rank's data of a round. REQUIRES: round < writable_end().
  void write(int64_t round, std::byte* slot, Piece piece) const;

  // Reads a piece of this rank's data of a round; slots[r] is the slot of rank r, and `inputs` is scratch space for as
  // many pointers. REQUIRES: this rank has written the round.
  void read(int64_t round, std::span<const std::byte* const> slots, std::span<const void*> inputs, Piece piece) const;

 private:
  struct Part {
    int64_t begin, count;
  };
  // The part of `total` elements that belongs to a round, with step_ elements per round.
  Part part(int64_t round, int64_t total) const;
  // The part of a large all_reduce that `rank` reduces in a round.
  Part share(int64_t round, int rank) const;
  std::byte* at(void* data, int64_t index) const { return static_cast<std::byte*>(data) + index * element_; }
  const std::byte* at(const void* data, int64_t index) const {
    return static_cast<const std::byte*>(data) + index * element_;
  }
  // The byte offset of the piece for rank `to` in a slot of rank `from` that has a piece for every other rank.
  int64_t slot_offset(int from, int to) const { return (to < from ? to : to - 1) * step_ * element_; }
  int64_t source_of(int rank) const;
  int64_t destination_of(int rank) const;
  // The elements of `count` that belong to a piece.
  Part elements_of(Piece piece, int64_t count) const;
  // Each does its piece of `count` elements.
  void copy(std::byte* to, const std::byte* from, int64_t count, Piece piece) const;
  void reduce_piece(std::span<const void* const> inputs, void* to, int64_t count, Piece piece) const;
  void reduce_small(std::span<const std::byte* const> slots, std::span<const void*> inputs, Piece piece) const;
  void read_shares(int64_t round, std::span<const std::byte* const> slots, std::span<const void*> inputs,
                   Piece piece) const;

  Operation operation_;
  int rank_ = 0, size_ = 1;
  int64_t element_ = 1;       // bytes of an element
  int64_t step_ = 1;          // elements of a piece or share per round
  int64_t input_rounds_ = 0;  // large all_reduce: rounds that carry input; 0 otherwise
  int64_t lag_ = 0;           // large all_reduce: rounds between an input and its result; 0 otherwise
  int64_t rounds_ = 1;
};

}  // namespace lockstep::detail
