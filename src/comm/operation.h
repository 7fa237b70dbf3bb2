// Operation: the request of one rank for a collective, as data. Thread safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/dtype.h"

namespace lockstep {

// How the values of different ranks are reduced. For booleans max is "any" and min is "all"; they have no sum.
enum class Reduction : uint8_t { sum, max, min };
std::string_view name(Reduction);

// `destination` receives the values of `source`.
struct Route {
  int source = 0;
  int destination = 0;
  bool operator==(const Route&) const = default;
};

struct Operation {
  // `split` is the barrier between the members of a new group.
  enum class Kind : uint8_t { all_reduce, reduce_scatter, all_gather, all_to_all, permute, broadcast, barrier, split };

  Kind kind = Kind::barrier;
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;  // all_reduce, reduce_scatter
  int root = 0;                          // broadcast
  const void* in = nullptr;
  void* out = nullptr;
  int64_t count = 0;                     // all_reduce, permute, broadcast: elements
  std::span<const int64_t> counts = {};  // reduce_scatter, all_gather: elements per rank; all_to_all: sent to each rank
  std::span<const int64_t> receive_counts = {};  // all_to_all: received from each rank
  std::span<const Route> routes = {};            // permute
};

std::string_view name(Operation::Kind);

// The sum of all counts, and of the counts of the ranks below `rank`.
int64_t total_count(std::span<const int64_t> counts);
int64_t count_before(std::span<const int64_t> counts, int rank);

// `all_reduce of 4 f32 (sum)`, `broadcast of 8 f32 from rank 0`, `all_gather of [3, 0, 2] i32`.
std::string describe(const Operation& operation);

// Throws Error when the operation is invalid by itself: negative counts, lists of the wrong length, a sum of booleans,
// a root or route outside the group, or memory that must not overlap.
void check(const Operation& operation, int rank, int size);

// What another process says that it requests, before its lists: numbers that may have any value.
struct RequestHeader {
  int64_t kind = 0, dtype = 0, reduction = 0;
  int64_t counts = 0, receive_counts = 0, routes = 0;  // lengths of the lists
};

// Whether an operation of `size` ranks can have these. Such an operation can be described and compared by agree(), also
// when it would not pass check().
bool is_valid(const RequestHeader& header, int size);

// Whether the requests of ranks a and b belong to the same collective: the same kind, element type and sizes, and in
// all_to_all equal counts for what one sends and the other receives. REQUIRES: both passed check() or
// is_valid().
bool agree(const Operation& of_a, int a, const Operation& of_b, int b);

}  // namespace lockstep
