// Combines updates with the rows of tables: adds them, for example. The indices of the updates are sorted, with their
// positions (sort.cuh), so that the updates of a row are a run of adjacent items, in the order of their positions. A warp
// combines some columns of up to kRun updates of one row, one after another. Longer runs are combined in parts of kRun
// updates, and then the parts in order: the order of the operations depends only on the indices.
#pragma once
#include "elements.cuh"

namespace lockstep {

// S describes the tables (scatter_cuda.cc): T is an element in memory, Index an index, Item a sorted one, combined() the
// operation, which is associative. There are
// kLists lists of kPlaces indices, and for each list kPre tables [kN, kPost] with updates [kPlaces, kPost]. A thread
// adds kVector columns, which are aligned. Thread blocks have kThreads threads.
template <class S>
struct Scatter {
  using T = typename S::T;
  using Item = typename S::Item;
  using Index = typename S::Index;
  using R = decltype(load(T{}));
  using Vector = Side<T, S::kVector>;
  using Sums = Side<R, S::kVector>;
  static constexpr uint32_t kRun = 32;
  static constexpr uint64_t kPlaces = S::kPlaces, kPost = S::kPost, kWindows = (kPlaces + kRun - 1) / kRun;
  static constexpr uint64_t kGroups = (kPost + 32u * S::kVector - 1) / (32u * S::kVector);  // of columns
  static constexpr uint32_t kTogether = 4;  // loads that a thread has in flight

  // What a warp works on: a position in a sorted list, and this thread's columns of one of the list's tables.
  const Item* items;
  const Index* indices;
  uint64_t table, place, column;
  int64_t row = -1;  // of the table; -1: none

  Scatter(const Item* all_items, const Index* all_indices) {
    const uint64_t warp = (uint64_t(blockIdx.x) * S::kThreads + threadIdx.x) / 32u;
    table = warp / kGroups / kPlaces;
    place = warp / kGroups % kPlaces;
    column = (warp % kGroups * 32u + threadIdx.x % 32u) * S::kVector;
    if (table >= uint64_t(S::kLists) * S::kPre) return;
    items = all_items + table / S::kPre * kPlaces;
    indices = all_indices + table / S::kPre * kPlaces;
    const int64_t index = index_at(place);
    if (index >= 0 && index < int64_t(S::kN)) row = index;
  }

  int64_t index_at(uint64_t at) const { return int64_t(indices[items[at].index()]); }
  bool is_head() const { return place == 0 || index_at(place - 1) != row; }
  bool continues_after(uint64_t at) const { return at < kPlaces && index_at(at) == row; }
  // The first position from `low` on whose index is not less than `index`.
  uint64_t bound(uint64_t low, int64_t index) const {
    uint64_t high = kPlaces;
    while (low < high) {
      const uint64_t middle = (low + high) / 2;
      if (index_at(middle) < index)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
  bool inside() const { return column < kPost; }
  uint64_t in_table() const { return (table * S::kN + uint64_t(row)) * kPost + column; }
  // Where the sum of the part that begins at a position is kept. In each window of kRun positions at most one part
  // begins a long run, and at most one continues one.
  uint64_t in_partial(uint64_t at, bool head) const {
    return ((table * kWindows + at / kRun) * 2u + (head ? 1u : 0u)) * kPost + column;
  }
  static void combine(Sums& sums, const Sums& x) {
#pragma unroll
    for (int q = 0; q < S::kVector; ++q) sums.v[q] = S::combined(sums.v[q], x.v[q]);
  }
  static Sums loaded(const T* from) {
    const Vector x = *reinterpret_cast<const Vector*>(from);
    Sums sums;
#pragma unroll
    for (int q = 0; q < S::kVector; ++q) sums.v[q] = load(x.v[q]);
    return sums;
  }
  static void store(T* to, const Sums& sums) {
    Vector x;
#pragma unroll
    for (int q = 0; q < S::kVector; ++q) x.v[q] = Store<T>::of(sums.v[q]);
    *reinterpret_cast<Vector*>(to) = x;
  }
  // Combines the sums with get(0), get(1), ... in order. `fresh`: get(0) replaces the sums.
  template <class Get>
  static void combine_all(Sums& sums, bool fresh, uint64_t count, const Get& get) {
    for (uint64_t first = 0; first < count; first += kTogether) {
      Sums x[kTogether];
#pragma unroll
      for (uint32_t u = 0; u < kTogether; ++u)
        if (first + u < count) x[u] = get(first + u);
#pragma unroll
      for (uint32_t u = 0; u < kTogether; ++u)
        if (fresh && first + u == 0)
          sums = x[0];
        else if (first + u < count)
          combine(sums, x[u]);
    }
  }

  // Combines the updates of short runs with their row, and writes the sums of the parts of long ones. `out` may be `x`; rows
  // without updates are not written.
  static void combine_runs(const Item* items, const Index* indices, const T* x, const T* updates, R* partial, T* out) {
    const Scatter s(items, indices);
    if (s.row < 0) return;
    const bool head = s.is_head();
    if (!head && (s.place < kRun || s.index_at(s.place - kRun) != s.row)) return;  // in the first part of its run
    if (!head && (s.place - s.bound(0, s.row)) % kRun != 0) return;
    const uint64_t own = s.place + threadIdx.x % 32u;
    const bool same = s.continues_after(own);
    const uint32_t update = own < kPlaces ? s.items[own].index() : 0;
    uint32_t count = same ? 1 : 0;
    for (int d = 16; d > 0; d /= 2) count += __shfl_xor_sync(0xffffffffu, count, d);
    const bool complete = head && !s.continues_after(s.place + kRun);
    Sums sums{};
    if (complete && s.inside()) sums = loaded(x + s.in_table());
    combine_all(sums, !complete, count, [&](uint64_t k) {
      const uint64_t at = __shfl_sync(0xffffffffu, update, int(k));
      Sums zero{};
      return s.inside() ? loaded(updates + (s.table * kPlaces + at) * kPost + s.column) : zero;
    });
    if (!s.inside()) return;
    if (complete)
      store(out + s.in_table(), sums);
    else
      *reinterpret_cast<Sums*>(partial + s.in_partial(s.place, head)) = sums;
  }

  // Combines the sums of the parts of long runs with their row.
  static void combine_parts(const Item* items, const Index* indices, const T* x, const R* partial, T* out) {
    const Scatter s(items, indices);
    if (s.row < 0 || !s.is_head() || !s.continues_after(s.place + kRun) || !s.inside()) return;
    const uint64_t parts = (s.bound(s.place, s.row + 1) - s.place + kRun - 1) / kRun;
    Sums sums = loaded(x + s.in_table());
    combine_all(sums, false, parts, [&](uint64_t k) {
      return *reinterpret_cast<const Sums*>(partial + s.in_partial(s.place + k * kRun, k == 0));
    });
    store(out + s.in_table(), sums);
  }
};

}  // namespace lockstep
