// MessageCollectives: executes the operations of a Comm with messages between ranks (Links).
//
// Agreement. Every operation begins with an all-gather of records (Bruck's algorithm): each rank contributes a hash of
// its request and, for a small operation, its payload. Afterwards every rank knows whether all ranks request the same,
// and small operations can be completed locally. Two ranks with a transport that has tags exchange only the payload;
// the hash travels in the tag.
//
// Data. For large operations each rank then exchanges pieces directly with every other rank:
//
//   reduce_scatter   each rank receives its piece from all others and reduces it
//   all_reduce       the same with equal pieces; then each rank sends its result to all others
//   all_gather       each rank sends its values to all others
//   broadcast        the root sends a piece to each rank; each rank sends its piece to all others but the root
//   all_to_all       each pair of ranks exchanges its pieces
//   permute          each source sends to its destination
//
// Pieces are sent in chunks, so that sending, reducing and returning results overlap.
//
// Cost, for n ranks. S: bytes of the buffer (of all pieces together for reduce_scatter, all_gather and all_to_all).
// P: payload bytes of a rank. A step is one message latency on the critical path.
//
//   operation                   steps          bytes sent by a rank
//   agreement                   log2(n)        (n - 1) * (24 + P)           P = 0 for large operations
//   any small operation         + 0            + 0                          P at most 32 KiB / n, 256 bytes to 16 KiB
//   large, besides agreement:
//     reduce_scatter            + 1            + S * (n - 1) / n            for equal pieces
//     all_reduce                + 2            + 2 * S * (n - 1) / n
//     all_gather                + 1            + S * (n - 1) / n            for equal pieces
//     broadcast                 + 2            + 2 * S * (n - 1) / n from the root, S * (n - 2) / n from the others
//     all_to_all                + 1            + S * (n - 1) / n            equal pieces; always large
//     permute                   + 1            + S
//
// Every element is reduced by one rank, in the order of the ranks, and 16-bit floats are rounded once. So results have
// the same bits as those of InProcessComm.
//
// Thread safety: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/links.h"
#include "comm/operation.h"

namespace lockstep {

class MessageCollectives {
 public:
  using Time = Links::Time;

  // Thrown: two ranks that request different operations, and descriptions of their requests.
  struct Disagreement {
    int ranks[2];
    std::string texts[2];
  };

  // `links` are those of `rank` in a group of `size` ranks, and outlive this object.
  MessageCollectives(Links& links, int rank, int size);

  // Executes operation `number`. Throws Disagreement, the same on all ranks, and what Links throws.
  void run(const Operation& operation, int64_t number, Time deadline);

 private:
  // Precedes the payload of a record.
  struct Header {
    uint64_t hash;     // of the request
    uint64_t balance;  // all_to_all: see balance_of()
    uint16_t payload_bytes;
    uint16_t second_message_bytes;  // bytes of the record that follow in a second message, in the first round
    uint32_t encoded_numbers;       // length of the request as a list of numbers, for throw_disagreement()
  };

  // Whether all ranks request the same operation. Messages of this rank may still be in flight: messages_[0].
  bool agree_on(const Operation& operation, int64_t number);
  bool agree_by_tag(const Operation& operation, int64_t number);
  bool agree_by_records(const Operation& operation, int64_t number, size_t payload_bytes);
  size_t record_limit() const;
  // The payload bytes of a rank in its record; 0 for large operations.
  size_t small_payload_bytes(const Operation& operation, int rank) const;
  // Throws LinkBroken if a record that rank `from` sent cannot be one.
  void check_record(const Header& record, int from) const;
  bool all_records_agree() const;
  // Gathers the requests of all ranks and throws a Disagreement. REQUIRES: all ranks call it.
  [[noreturn]] void throw_disagreement(const Operation& operation);
  // Completes a small operation from the payloads of the records.
  void complete_small(const Operation& operation);

  // Set pieces_: equal pieces of `count` elements, or pieces of these sizes.
  void set_equal_pieces(int64_t count);
  void set_pieces(std::span<const int64_t> counts);
  // Reduces this rank's piece of the inputs of all ranks into own_out. Where `gathered` is not null, the results of all
  // ranks are gathered there, and own_out is this rank's piece of it.
  void reduce_pieces(const Operation& operation, std::byte* own_out, std::byte* gathered);
  void gather_pieces(const std::byte* own, std::byte* out, size_t element);
  void exchange_pairs(const Operation& operation);
  void permute(const Operation& operation);
  void broadcast(const Operation& operation);

  // Start messages on the data channel, and add them to a list for await().
  void send(std::vector<int>& messages, int to, const std::byte* data, size_t bytes);
  void receive(std::vector<int>& messages, int from, std::byte* data, size_t bytes);
  void await(std::vector<int>& messages);

  Header header(int rank) const;
  const std::byte* payload(int rank) const;
  size_t record_index(int rank) const;
  int64_t piece_count(int rank) const;

  Links& links_;
  const int rank_;
  const int size_;
  const size_t payload_limit_;  // the largest payload of a record
  Time deadline_{};

  std::vector<std::byte> records_;   // of this rank, rank - 1, rank - 2, ... (modulo size)
  std::vector<size_t> offsets_;      // where each record begins, and where the last one ends
  std::vector<int64_t> pieces_;      // by rank: where its piece begins, in elements; and where the last one ends
  std::vector<std::byte> scratch_;   // received values that are still to be reduced
  std::vector<const void*> inputs_;  // by rank
  std::vector<int> messages_[4];     // messages in flight; reduce_pieces() uses all four lists
};

}  // namespace lockstep
