// Sizes and buffers of operations, for MessageCollectives. Pure functions; safe from any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "comm/operation.h"

namespace lockstep::detail {

inline size_t index(int rank) { return static_cast<size_t>(rank); }
inline size_t rounded_up(size_t bytes) { return (bytes + 7) & ~size_t{7}; }
inline size_t bytes_of(const Operation& operation, int64_t count) {
  return static_cast<size_t>(count) * static_cast<size_t>(size_of(operation.dtype));
}

inline const std::byte* input(const Operation& operation) { return static_cast<const std::byte*>(operation.in); }
inline std::byte* output(const Operation& operation) { return static_cast<std::byte*>(operation.out); }

inline void copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

// Whether the payloads fit into the records of the agreement, with at most `limit` bytes per rank. All ranks compute
// the same result.
inline bool is_small(const Operation& operation, size_t limit) {
  switch (operation.kind) {
    case Operation::Kind::all_reduce:
    case Operation::Kind::permute:
    case Operation::Kind::broadcast:
      return bytes_of(operation, operation.count) <= limit;
    case Operation::Kind::reduce_scatter:
      return bytes_of(operation, total_count(operation.counts)) <= limit;
    case Operation::Kind::all_gather:
      return bytes_of(operation, std::ranges::max(operation.counts)) <= limit;
    case Operation::Kind::all_to_all:
      return false;  // a rank does not know the sizes of all payloads
    case Operation::Kind::barrier:
    case Operation::Kind::split:
      break;
  }
  return true;
}

// The payload bytes of a rank in a small operation.
inline size_t payload_bytes_of(const Operation& operation, int rank) {
  switch (operation.kind) {
    case Operation::Kind::all_reduce:
      return bytes_of(operation, operation.count);
    case Operation::Kind::permute:
      return std::ranges::any_of(operation.routes, [&](const Route& route) { return route.source == rank; })
                 ? bytes_of(operation, operation.count)
                 : 0;
    case Operation::Kind::broadcast:
      return rank == operation.root ? bytes_of(operation, operation.count) : 0;
    case Operation::Kind::reduce_scatter:
      return bytes_of(operation, total_count(operation.counts));
    case Operation::Kind::all_gather:
      return bytes_of(operation, operation.counts[index(rank)]);
    default:
      return 0;
  }
}

}  // namespace lockstep::detail
