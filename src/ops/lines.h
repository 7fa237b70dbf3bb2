// Lines: an array as lines along one axis, for rows that process the axis in order. Pure functions; for_columns() runs
// on the threads of a Pool.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lane/pool.h"
#include "lockstep/shape.h"
#include "ops/dims.h"

namespace lockstep {

inline constexpr int64_t kScanGrain = 16384;
inline constexpr int64_t kScanColumns = 128;  // per task

// An array as [outer, n, inner], n along the axis.
struct Lines {
  int64_t outer, n, inner;

  Lines(const Shape& shape, int64_t axis)
      : outer(extent(shape, 0, axis)),
        n(shape[static_cast<size_t>(axis)]),
        inner(extent(shape, axis + 1, static_cast<int64_t>(shape.size()))) {}
};

// Runs f(o, first, columns) over blocks of columns [first, first + columns) of every o, in parallel.
template <class F>
void for_columns(const Lines& l, Pool& pool, F&& f) {
  const int64_t blocks = (l.inner + kScanColumns - 1) / kScanColumns;
  const int64_t task = std::max<int64_t>(l.n * std::min(l.inner, kScanColumns), 1);
  pool.parallel_range(l.outer * blocks, std::max<int64_t>(kScanGrain / task, 1), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * kScanColumns;
      f(i / blocks, first, std::min(kScanColumns, l.inner - first));
    }
  });
}

}  // namespace lockstep
