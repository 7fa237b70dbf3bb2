#include "data/text/bpe_merger.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "base/check.h"

namespace lockstep::detail {

MergeTable::MergeTable(const std::vector<BpeMerge>& merges) {
  const size_t size = std::bit_ceil(std::max<size_t>(16, merges.size() * 2));
  slots_.resize(size);
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t key = key_of(merges[rank].left, merges[rank].right);
    size_t i = slot_of(key);
    while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
    slots_[i] = {key, static_cast<uint32_t>(rank), merges[rank].result};
  }
}

void WordCache::store(const Key& key, const int32_t* ids, size_t count) {
  // The newer word goes first; the older one of the two is dropped.
  const size_t i = slot_of(key);
  slots_[i + 1] = slots_[i];
  slots_[i].key = key;
  slots_[i].count = static_cast<uint32_t>(count);
  std::copy_n(ids, count, slots_[i].ids);
}

// Tokens by their bytes.
class BpeMerger::WholeWords {
 public:
  explicit WholeWords(const BpeSpec& spec, const std::vector<std::string>& bytes_of_ids) {
    for (size_t id = 0; id < spec.tokens.size(); ++id)
      if (bytes_of_symbols(spec.tokens[id])) ids_.try_emplace(bytes_of_ids[id], static_cast<int32_t>(id));
  }
  const int32_t* find(std::string_view word) const {
    const auto at = ids_.find(word);
    return at == ids_.end() ? nullptr : &at->second;
  }

 private:
  std::unordered_map<std::string_view, int32_t> ids_;
};

BpeMerger::BpeMerger(const BpeSpec& spec, const std::vector<std::string>& bytes_of_ids)
    : name_(spec.name), unknown_(spec.unknown.value_or(-1)), fuse_unknown_(spec.fuse_unknown), merges_(spec.merges) {
  byte_ids_.fill(-1);
  for (size_t id = 0; id < spec.tokens.size(); ++id)
    if (const auto bytes = bytes_of_symbols(spec.tokens[id]); bytes && bytes->size() == 1)
      byte_ids_[static_cast<uint8_t>((*bytes)[0])] = static_cast<int32_t>(id);
  if (spec.ignore_merges) whole_words_ = std::make_unique<const WholeWords>(spec, bytes_of_ids);
}

BpeMerger::~BpeMerger() = default;

void BpeMerger::start(std::string_view word, BpeScratch& scratch) const {
  constexpr size_t kMostBytes = std::numeric_limits<uint32_t>::max() / 2;
  if (word.size() > kMostBytes)
    throw_error("tokenizer {}: a word of the text has {} bytes; the limit is {}", name_, word.size(), kMostBytes);
  scratch.ids.clear();
  bool was_unknown = false;
  for (const char c : word) {
    const auto byte = static_cast<uint8_t>(c);
    const int32_t id = byte_ids_[byte];
    if (id < 0 && unknown_ < 0)
      throw_error(
          "tokenizer {}: it has no token for the byte 0x{:02x} of the text, and no token for unknown bytes; train it "
          "with all 256 bytes",
          name_, byte);
    if (id >= 0) {
      scratch.ids.push_back(id);
    } else if (!was_unknown || !fuse_unknown_) {
      scratch.ids.push_back(unknown_);
    }
    was_unknown = id < 0;
  }
}

// Merges the pair of the lowest rank, the leftmost of equals, until no pair has a merge.
void BpeMerger::merge_short(BpeScratch& scratch) const {
  std::vector<int32_t>& ids = scratch.ids;
  std::vector<uint32_t>& ranks = scratch.ranks;
  ranks.resize(ids.size());
  const auto rank_at = [&](size_t i) {
    return i + 1 < ids.size() ? merges_.find(ids[i], ids[i + 1]).rank : MergeTable::kNone;
  };
  for (size_t i = 0; i < ids.size(); ++i) ranks[i] = rank_at(i);
  while (ids.size() > 1) {
    const size_t at = static_cast<size_t>(std::min_element(ranks.begin(), ranks.end()) - ranks.begin());
    if (ranks[at] == MergeTable::kNone) return;
    ids[at] = merges_.find(ids[at], ids[at + 1]).result;
    ids.erase(ids.begin() + static_cast<int64_t>(at) + 1);
    ranks.erase(ranks.begin() + static_cast<int64_t>(at) + 1);
    ranks[at] = rank_at(at);
    if (at > 0) ranks[at - 1] = rank_at(at - 1);
  }
}

// The same with a heap and a linked list: n log n.
void BpeMerger::merge_long(BpeScratch& scratch) const {
  using Candidate = BpeScratch::Candidate;
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  std::vector<int32_t>& ids = scratch.ids;
  const auto size = static_cast<uint32_t>(ids.size());
  scratch.next.resize(size);
  scratch.previous.resize(size);
  scratch.heap.clear();
  constexpr uint32_t kNoPosition = 0xffffffff;
  for (uint32_t i = 0; i < size; ++i) {
    scratch.next[i] = i + 1 < size ? i + 1 : kNoPosition;
    scratch.previous[i] = i - 1;  // kNoPosition for the first
  }
  const auto candidate = [&](uint32_t at) -> Candidate {
    const uint32_t right = scratch.next[at];
    if (right == kNoPosition) return {MergeTable::kNone, at, 0, 0};
    return {merges_.find(ids[at], ids[right]).rank, at, ids[at], ids[right]};
  };
  const auto push = [&](uint32_t at) {
    if (const Candidate found = candidate(at); found.rank != MergeTable::kNone) {
      scratch.heap.push_back(found);
      std::push_heap(scratch.heap.begin(), scratch.heap.end(), later);
    }
  };
  for (uint32_t i = 0; i < size; ++i)
    if (const Candidate found = candidate(i); found.rank != MergeTable::kNone) scratch.heap.push_back(found);
  std::make_heap(scratch.heap.begin(), scratch.heap.end(), later);
  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), later);
    const Candidate best = scratch.heap.back();
    scratch.heap.pop_back();
    const uint32_t right = scratch.next[best.at];
    // Stale if a later merge changed one of the two.
    if (right == kNoPosition || ids[best.at] != best.left || ids[right] != best.right) continue;
    ids[best.at] = merges_.find(best.left, best.right).result;
    ids[right] = -1;
    const uint32_t after = scratch.next[best.at] = scratch.next[right];
    if (after != kNoPosition) scratch.previous[after] = best.at;
    push(best.at);
    if (const uint32_t before = scratch.previous[best.at]; before != kNoPosition) push(before);
  }
  std::erase(ids, -1);
}

void BpeMerger::append_merged(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const {
  constexpr size_t kShort = 48;
  if (whole_words_)
    if (const int32_t* id = whole_words_->find(word)) {
      ids.push_back(*id);
      return;
    }
  start(word, scratch);
  if (scratch.ids.size() <= kShort) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
}

}  // namespace lockstep::detail
