// Sorts the lines of an array [outer, kN, kInner], or keeps the first kKept of each line (top_k). A key is mapped to an
// unsigned integer of the requested order and compared together with its index. No two items are equal, so every
// sorting algorithm gives the stable order.
#pragma once
#include <type_traits>

#include "elements.cuh"

namespace lockstep {

// A key and its index in the line.
template <class Key>
struct SortItem {
  uint64_t key;
  uint32_t place;
  static SortItem of(Key key, uint32_t place) { return {key, place}; }
  uint32_t index() const { return place; }
  bool operator<(const SortItem& other) const { return key != other.key ? key < other.key : place < other.place; }
};
template <>
struct SortItem<uint32_t> {
  uint64_t word;
  static SortItem of(uint32_t key, uint32_t place) { return {uint64_t(key) << 32 | place}; }
  uint32_t index() const { return uint32_t(word); }
  bool operator<(const SortItem& other) const { return word < other.word; }
};

// S describes the lines (sort_cuda.cc): T is the element in memory. Thread blocks have kThreads threads and sort
// kTogether ranges of kPadded items, a power of 2; a line has kTiles ranges.
template <class S>
struct Sort {
  using T = typename S::T;
  using R = decltype(load(T{}));
  using Key = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  using Item = SortItem<Key>;
  static constexpr Key kSign = Key(1) << (sizeof(Key) * 8 - 1);

  // Maps a number to an integer of the requested order. NaN is greatest.
  static Key ordered(R x) {
    Key key;
    if constexpr (std::is_floating_point_v<R>) {
      if (x != x) return S::kDescending ? Key(0) : ~Key(0);
      const Key bits = x == 0 ? Key(0) : __builtin_bit_cast(Key, x);
      key = bits & kSign ? ~bits : bits | kSign;
    } else {
      key = std::is_signed_v<R> ? Key(x) ^ kSign : Key(x);
    }
    return S::kDescending ? Key(~key) : key;
  }
  // The position of a line's first element.
  static uint64_t first_of(uint64_t line) { return line / S::kInner * S::kN * S::kInner + line % S::kInner; }

  // Sorts the ranges of this thread block and returns them, in shared memory (bitonic sort).
  static const Item* sorted_ranges(const T* keys) {
    constexpr uint32_t kAll = S::kTogether * S::kPadded;
    __shared__ Item items[kAll];
    const uint64_t line0 = blockIdx.x / S::kTiles * uint64_t(S::kTogether);
    const uint32_t tile = blockIdx.x % S::kTiles;
    for (uint32_t s = threadIdx.x; s < kAll; s += S::kThreads) {
      const uint64_t line = line0 + s / S::kPadded, i = uint64_t(tile) * S::kPadded + s % S::kPadded;
      items[s] = line < S::kLines && i < S::kN
                     ? Item::of(ordered(load(keys[first_of(line) + i * S::kInner])), uint32_t(i))
                     : Item::of(~Key(0), 0xffffffffu);
    }
    for (uint32_t size = 2; size <= S::kPadded; size *= 2)
      for (uint32_t apart = size / 2; apart > 0; apart /= 2) {
        __syncthreads();
        for (uint32_t s = threadIdx.x; s < kAll / 2; s += S::kThreads) {
          const uint32_t a = (s & ~(apart - 1)) * 2 + (s & (apart - 1)), b = a + apart;
          const bool up = (a % S::kPadded & size) == 0;
          const Item x = items[a], y = items[b];
          if ((y < x) == up) {
            items[a] = y;
            items[b] = x;
          }
        }
      }
    __syncthreads();
    return items;
  }

  // Sorts lines of one range. Calls take(line, i, from) if position i of a line gets the element at `from`.
  template <class Take>
  static void sort_lines(const T* keys, const Take& take) {
    const Item* const items = sorted_ranges(keys);
    for (uint32_t s = threadIdx.x; s < S::kTogether * S::kPadded; s += S::kThreads) {
      const uint64_t line = uint64_t(blockIdx.x) * S::kTogether + s / S::kPadded, i = s % S::kPadded;
      if (line < S::kLines && i < S::kKept) take(line, i, items[s].index());
    }
  }

  // Longer lines, in several kernels: sort_runs(), merge() until a line is one run, take_runs(). A run of `width`
  // keys has at most kKept items.
  static constexpr uint64_t kept(uint64_t width) { return S::kKept < width ? S::kKept : width; }

  // Sorts the ranges of lines and writes each as a run.
  static void sort_runs(const T* keys, Item* runs) {
    constexpr uint32_t kRun = kept(S::kPadded);
    const Item* const items = sorted_ranges(keys);
    const uint64_t line = blockIdx.x / S::kTiles;
    const uint32_t tile = blockIdx.x % S::kTiles;
    for (uint32_t s = threadIdx.x; s < S::kPadded; s += S::kThreads)
      if (s < kRun) runs[(line * S::kTiles + tile) * kRun + s] = items[s];
  }

  // The number of items of a run.
  static uint64_t length(uint64_t run, uint64_t width) {
    const uint64_t begin = run * width;
    if (begin >= S::kN) return 0;
    const uint64_t keys = S::kN - begin < width ? S::kN - begin : width;
    return keys < S::kKept ? keys : S::kKept;
  }

  // Merges pairs of runs of `width` keys; a line has `runs`. Every item finds its position in the merged run: its
  // position in its own run plus the number of smaller items in the other.
  static void merge(const Item* from, Item* to, uint64_t width, uint64_t runs) {
    const uint64_t stride = kept(width), wider = kept(2 * width);
    const uint64_t s = uint64_t(blockIdx.x) * S::kThreads + threadIdx.x;
    if (s >= S::kLines * runs * stride) return;
    const uint64_t at = s % stride, run = s / stride % runs, line = s / stride / runs;
    if (at >= length(run, width)) return;
    const Item own = from[s];
    const Item* other = from + (line * runs + (run ^ 1)) * stride;
    uint64_t lo = 0, hi = length(run ^ 1, width);
    while (lo < hi) {
      const uint64_t middle = (lo + hi) / 2;
      if (other[middle] < own)
        lo = middle + 1;
      else
        hi = middle;
    }
    if (at + lo < S::kKept) to[(line * ((runs + 1) / 2) + run / 2) * wider + at + lo] = own;
  }

  // Calls take() as sort_lines() does, for lines of one merged run.
  template <class Take>
  static void take_runs(const Item* sorted, const Take& take) {
    const uint64_t s = uint64_t(blockIdx.x) * S::kThreads + threadIdx.x;
    if (s >= S::kLines * S::kKept) return;
    take(s / S::kKept, s % S::kKept, sorted[s].index());
  }
};

}  // namespace lockstep
