#include "plan/memory.h"

#include <algorithm>
#include <numeric>

namespace lockstep {
namespace {

struct OffsetRange {
  int64_t begin, end;
};

// A union of ranges of offsets, in order. Ranges that touch are one.
class OccupiedOffsets {
 public:
  void add(OffsetRange added) {
    const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), added.begin,
                                        [](const OffsetRange& r, int64_t begin) { return r.end < begin; });
    auto last = first;
    for (; last != ranges_.end() && last->begin <= added.end; ++last)
      added = {std::min(added.begin, last->begin), std::max(added.end, last->end)};
    if (first == last) {
      ranges_.insert(first, added);
    } else {
      *first = added;
      ranges_.erase(first + 1, last);
    }
  }
  const std::vector<OffsetRange>& ranges() const { return ranges_; }

 private:
  std::vector<OffsetRange> ranges_;
};

// Reads the ranges of a union from the lowest on.
class OffsetReader {
 public:
  explicit OffsetReader(const OccupiedOffsets& offsets)
      : next_(offsets.ranges().data()), end_(next_ + offsets.ranges().size()) {}

  // Moves `begin` up to where `size` is free. It is never lower than in the call before.
  void skip(int64_t& begin, int64_t size) {
    for (; next_ != end_ && next_->begin < begin + size; ++next_) begin = std::max(begin, next_->end);
  }
  bool at_end() const { return next_ == end_; }

 private:
  const OffsetRange *next_, *end_;
};

// The offsets that placed blocks occupy over time, as a segment tree: a node stands for a range of times. It knows what
// is occupied during all of its range, and what is occupied at some time in it. Each is a union of ranges, of which there
// are few however many blocks are alive: they lie side by side.
class OccupiedArena {
 public:
  explicit OccupiedArena(size_t times) : times_(times), always_(4 * times), sometimes_(4 * times) {}

  void add(size_t first, size_t last, OffsetRange range) { add(0, 0, times_, first, last + 1, range); }

  // The lowest offset with `size` free bytes from time `first` to time `last`.
  int64_t lowest_free(size_t first, size_t last, int64_t size) const {
    std::vector<OffsetReader> during;
    collect(0, 0, times_, first, last + 1, during);
    int64_t begin = 0;
    for (int64_t before = -1; before != begin;) {
      before = begin;
      for (OffsetReader& each : during) each.skip(begin, size);
      std::erase_if(during, [](const OffsetReader& each) { return each.at_end(); });
    }
    return begin;
  }

 private:
  // The node stands for the times [low, high).
  void add(size_t node, size_t low, size_t high, size_t first, size_t past, OffsetRange range) {
    if (past <= low || high <= first) return;
    sometimes_[node].add(range);
    if (first <= low && high <= past) return always_[node].add(range);
    const size_t middle = (low + high) / 2;
    add(2 * node + 1, low, middle, first, past, range);
    add(2 * node + 2, middle, high, first, past, range);
  }

  void collect(size_t node, size_t low, size_t high, size_t first, size_t past,
               std::vector<OffsetReader>& during) const {
    if (past <= low || high <= first) return;
    if (first <= low && high <= past) return during.push_back(OffsetReader(sometimes_[node]));
    during.push_back(OffsetReader(always_[node]));
    const size_t middle = (low + high) / 2;
    collect(2 * node + 1, low, middle, first, past, during);
    collect(2 * node + 2, middle, high, first, past, during);
  }

  const size_t times_;
  std::vector<OccupiedOffsets> always_, sometimes_;  // by node
};

// The times at which blocks begin or end to live, in order.
std::vector<int> times_of(const std::vector<ArenaBlock>& blocks) {
  std::vector<int> times;
  for (const ArenaBlock& block : blocks) {
    times.push_back(block.first);
    times.push_back(block.last);
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  return times;
}

}  // namespace

int64_t assign_offsets(std::vector<ArenaBlock>& blocks) {
  // Largest first, each into the lowest gap among the blocks already placed that live at the same time.
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  const std::vector<int> times = times_of(blocks);
  const auto number = [&](int time) {
    return static_cast<size_t>(std::lower_bound(times.begin(), times.end(), time) - times.begin());
  };
  constexpr int64_t kAlign = 64;
  int64_t total = 0;
  OccupiedArena arena(times.size());
  for (size_t i : order) {
    ArenaBlock& block = blocks[i];
    const int64_t bytes = (block.bytes + kAlign - 1) / kAlign * kAlign;
    block.offset = 0;
    if (bytes == 0) continue;
    const size_t first = number(block.first), last = number(block.last);
    block.offset = arena.lowest_free(first, last, bytes);
    arena.add(first, last, {block.offset, block.offset + bytes});
    total = std::max(total, block.offset + bytes);
  }
  return total;
}

}  // namespace lockstep
