// Exchange: how an operation is done with messages between ranks.
//
// First all ranks meet: each sends what it asks for, with its values where they are few, around the group, so that
// after log2(n) rounds everybody has what everybody gave. Then all know whether they agree, and small operations are
// done. Of large ones the values follow:
//
//   reduce_scatter   each rank receives its piece from all others, and combines them
//   all_reduce       the same for equal pieces, and each sends its result to all others
//   all_gather       each sends its values to all others
//   broadcast        the root sends each rank a piece, and each sends that to all others
//   all_to_all, permute   each pair on its own
//
// Pieces are handled in chunks, so that values travel while others are combined. Every element is combined by one rank
// in the order of the ranks, 16-bit floats are rounded once: the same bits as between the lanes of one process.
//
// Threads: one at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/links.h"
#include "comm/operation.h"

namespace lockstep {

class Exchange {
 public:
  using Time = Links::Time;

  // Two ranks that ask for different things, and what they ask.
  struct Disagreement {
    int ranks[2];
    std::string texts[2];
  };

  // The links are those of `rank` among `size`, and outlive this.
  Exchange(Links& links, int rank, int size);

  // Throws Disagreement, the same on all ranks, and what Links throw.
  void run(const Operation& operation, int64_t number, Time deadline);

 private:
  // Before the payload of a record. `rest`: how many bytes of the record follow in a second message, in the first
  // round. `numbers`: how many describe the operation when ranks disagree.
  struct Header {
    uint64_t hash;
    uint64_t balance;
    uint16_t payload_bytes, rest;
    uint32_t numbers;
  };

  // Whether all ask for the same. What this rank gave may still be leaving then: messages_[0].
  bool meet(const Operation& operation, int64_t number);
  bool meet_stamped(const Operation& operation, int64_t number);
  bool meet_around(const Operation& operation, int64_t number, size_t given);
  size_t record_limit() const;
  bool agreed() const;
  [[noreturn]] void disagree(const Operation& operation);
  void finish_small(const Operation& operation);

  void cut(int64_t count);
  void cut(std::span<const int64_t> counts);
  void reduce_pieces(const Operation& operation, std::byte* own_out, std::byte* gathered);
  void gather_pieces(const std::byte* own, std::byte* out, size_t element);
  void exchange_pairs(const Operation& operation);
  void permute(const Operation& operation);
  void broadcast(const Operation& operation);

  // Begin messages that await() waits for.
  void send(std::vector<int>& messages, int to, const std::byte* data, size_t bytes);
  void receive(std::vector<int>& messages, int from, std::byte* data, size_t bytes);
  void await(std::vector<int>& messages);

  Header header(int rank) const;
  const std::byte* payload(int rank) const;
  size_t place(int rank) const;
  int64_t piece_count(int rank) const;

  Links& links_;
  const int rank_;
  const int size_;
  const size_t payload_limit_;
  Time deadline_{};

  std::vector<std::byte> records_;   // of this rank, the one before it, and so on
  std::vector<size_t> offsets_;      // where they begin
  std::vector<int64_t> pieces_;      // where the pieces of the ranks begin, in elements, and where the last ends
  std::vector<std::byte> scratch_;   // what was received and will be combined
  std::vector<const void*> inputs_;  // of all ranks
  std::vector<int> messages_[4];
};

}  // namespace lockstep
