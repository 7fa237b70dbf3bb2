// BpeMerger: applies merges to words. Immutable, safe from any thread; each call needs a BpeScratch of its own.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/bpe_spec.h"

namespace lockstep::detail {

// A hash table from pairs of ids to merges, with open addressing.
class MergeTable {
 public:
  static constexpr uint32_t kNone = 0xffffffff;
  struct Found {
    uint32_t rank = kNone;
    int32_t result = 0;
  };

  explicit MergeTable(const std::vector<BpeMerge>& merges);

  Found find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t i = slot_of(key);; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.key == key) return {slot.rank, slot.result};
      if (slot.key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    uint32_t rank = kNone;
    int32_t result = 0;
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const { return (key * 0x9e3779b97f4a7c15u) >> shift_; }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  int shift_ = 0;
};

// The ids of recently encoded words of up to 15 bytes: two slots for each hash, one of which is replaced.
class WordCache {
 public:
  static constexpr size_t kMostBytes = 15;
  static constexpr size_t kMostIds = 11;

  struct Key {
    uint64_t low = 0, high = 0;  // the bytes, and the length in the last one
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct alignas(64) Slot {
    Key key;
    uint32_t count = 0;
    int32_t ids[kMostIds] = {};
  };

  WordCache() : slots_(kSlots) {}

  // REQUIRES: 0 < size <= kMostBytes.
  static Key key_of(const char* word, size_t size) {
    // Loads of fixed sizes that overlap: a copy of `size` bytes would be a call.
    Key key{.high = static_cast<uint64_t>(size) << 56};
    if (size > 8) {
      key.low = load<uint64_t>(word);
      key.high |= load<uint64_t>(word + size - 8) >> (8 * (16 - size));
    } else if (size >= 4) {
      key.low = load<uint32_t>(word) | uint64_t{load<uint32_t>(word + size - 4)} << (8 * (size - 4));
    } else {
      key.low = load<uint8_t>(word) | uint64_t{load<uint8_t>(word + size / 2)} << (8 * (size / 2)) |
                uint64_t{load<uint8_t>(word + size - 1)} << (8 * (size - 1));
    }
    return key;
  }
  // The slot of a word; null if it is not in the cache.
  const Slot* find(const Key& key) const {
    const size_t i = slot_of(key);
    if (slots_[i].key == key) return &slots_[i];
    if (slots_[i + 1].key == key) return &slots_[i + 1];
    return nullptr;
  }
  // REQUIRES: count <= kMostIds.
  void store(const Key& key, const int32_t* ids, size_t count);

 private:
  static constexpr size_t kSlots = size_t{1} << 15;

  template <class T>
  static T load(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
  }
  static size_t slot_of(const Key& key) {
    const uint64_t mixed = (key.low ^ (key.high * 0x9e3779b97f4a7c15u)) * 0xd6e8feb86659fd93u;
    return (mixed >> 49) & ~size_t{1};
  }

  std::vector<Slot> slots_;
};

// Memory that is used again for every word.
struct BpeScratch {
  struct Candidate {
    uint32_t rank, at;
    int32_t left, right;
  };

  WordCache cache;
  std::vector<int32_t> ids;
  std::vector<uint32_t> ranks, next, previous;
  std::vector<Candidate> heap;
  std::vector<std::string_view> words, more_words;
  std::string text;
};

class BpeMerger {
 public:
  explicit BpeMerger(const BpeSpec& spec, const std::vector<std::string>& bytes_of_ids);
  ~BpeMerger();

  // Appends the ids of a word. Throws Error when a byte has no token and there is no token for unknown bytes.
  void append(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const {
    if (word.size() <= WordCache::kMostBytes) {
      const WordCache::Key key = WordCache::key_of(word.data(), word.size());
      if (const WordCache::Slot* slot = scratch.cache.find(key)) {
        if (slot->count == 1) return ids.push_back(slot->ids[0]);
        ids.insert(ids.end(), slot->ids, slot->ids + slot->count);
        return;
      }
      const size_t before = ids.size();
      append_merged(word, scratch, ids);
      if (const size_t count = ids.size() - before; count <= WordCache::kMostIds)
        scratch.cache.store(key, ids.data() + before, count);
      return;
    }
    append_merged(word, scratch, ids);
  }

 private:
  class WholeWords;

  void append_merged(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  void start(std::string_view word, BpeScratch& scratch) const;
  void merge_short(BpeScratch& scratch) const;
  void merge_long(BpeScratch& scratch) const;

  std::string name_;
  std::array<int32_t, 256> byte_ids_;
  int32_t unknown_ = -1;
  bool fuse_unknown_ = false;
  MergeTable merges_;
  std::unique_ptr<const WholeWords> whole_words_;  // null unless ignore_merges
};

}  // namespace lockstep::detail
