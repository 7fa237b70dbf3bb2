// Sorting lines of an array on the GPU (kernels/sort.cuh). As on the CPU, a key is mapped to an unsigned integer of the
// requested order and compared together with its index. No two items are equal, so every sorting algorithm gives the
// stable order. A thread block sorts a range of a line (bitonic, in shared memory). Longer lines are merged from
// ranges, pass by pass; top_k keeps only the first k of every run. Used by the thread of a lane.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "lane/cuda/code.h"
#include "program/op.h"

namespace lockstep {

constexpr int kSortThreads = 256;
constexpr int64_t kSortTile = 2048;  // items that a thread block sorts

// An array as [outer, n, inner], n along the axis; the result has the first `kept` of each line.
struct SortLines {
  int64_t n = 0, inner = 1, lines = 0, kept = 0;
  bool descending = true, top = false;
  bool as_runs = false;  // lines of one range are sorted as a run, too

  SortLines(bool top_k, const KernelSpec& spec);
  // Complete lines of adjacent keys, ascending, as runs.
  SortLines(int64_t keys, int64_t count);

  bool in_a_block() const { return !as_runs && n <= kSortTile; }
  // Items of a line in shared memory: a power of 2.
  int64_t padded() const;
  // Lines per thread block, if they are short.
  int64_t together() const;
  int64_t tiles() const { return (n + kSortTile - 1) / kSortTile; }
  // The distance between runs of `width` keys.
  int64_t stride(int64_t width) const { return std::min(kept, width); }
};

// The text of a kernel that calls this function of Sort<>, and those of LineSort.
std::string sort_text(const SortLines& lines, DType dtype, const std::string& parameters, const std::string& call);
std::vector<std::string> line_sort_texts(const SortLines& lines, DType dtype);

// Sorts lines as runs, in several launches.
class LineSort {
 public:
  // REQUIRES: not lines.in_a_block().
  LineSort(const SortLines& lines, DType dtype, CudaStream& stream);

  // Enqueues the sorting of the keys. Returns the memory of the sorted items [lines, kept], valid until the next call.
  const void* operator()(const void* keys) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
