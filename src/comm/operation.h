// Operation: what one rank asks of its group, as data. Plain values; the functions are pure and safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/dtype.h"

namespace lockstep {

// How values of different ranks become one. Of booleans max is "any" and min is "all"; they have no sum.
enum class Reduction : uint8_t { sum, max, min };
std::string_view name(Reduction);

// What `source` gives, `destination` receives.
struct Route {
  int source = 0;
  int destination = 0;
  bool operator==(const Route&) const = default;
};

struct Operation {
  // `split` is the meeting of the members of a new group: a barrier under another name.
  enum class Kind : uint8_t { all_reduce, reduce_scatter, all_gather, all_to_all, permute, broadcast, barrier, split };

  Kind kind = Kind::barrier;
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;  // all_reduce, reduce_scatter
  int root = 0;                          // broadcast
  const void* in = nullptr;
  void* out = nullptr;
  int64_t count = 0;                     // all_reduce, permute, broadcast: elements
  std::span<const int64_t> counts = {};  // reduce_scatter, all_gather: elements per rank; all_to_all: sent to each
  std::span<const int64_t> receive_counts = {};  // all_to_all: received from each
  std::span<const Route> routes = {};            // permute
};

std::string_view name(Operation::Kind);

// `all_reduce of 4 f32 (sum)`, `broadcast of 8 f32 from rank 0`, `all_gather of [3, 0, 2] i32`.
std::string describe(const Operation& operation);

// Throws Error when the operation makes no sense on its own: negative counts, lists of the wrong length, a sum of
// booleans, a root or route that does not exist, memory that overlaps where it must not.
void check(const Operation& operation, int rank, int size);

// Whether ranks a and b may ask these at the same time: the same kind, element type and sizes, and in all_to_all what
// one sends to the other is what that one receives. REQUIRES: both passed check().
bool agree(const Operation& of_a, int a, const Operation& of_b, int b);

}  // namespace lockstep
