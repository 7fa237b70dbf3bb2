// RecentlyUsed: the most recently used values of a cache, found by a hash and a comparison. Finding one allocates nothing.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <iterator>
#include <list>
#include <unordered_map>
#include <utility>

namespace lockstep::detail {

template <class T>
class RecentlyUsed {
 public:
  struct Entry {
    size_t hash;
    bool kept;
    T value;
  };
  using Entries = std::list<Entry>;

  // REQUIRES: limit > 0.
  explicit RecentlyUsed(size_t limit) : limit_(limit) {}

  size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }  // the most recently used comes first
  auto end() const { return entries_.end(); }

  // The value that was used last; null if there is none.
  T* last() { return entries_.empty() ? nullptr : &entries_.front().value; }

  // The value of this hash for which same(value) is true; null if there is none. It counts as used.
  template <class Same>
  T* find(size_t hash, const Same& same) {
    for (auto [at, end] = by_hash_.equal_range(hash); at != end; ++at)
      if (same(std::as_const(at->second->value))) {
        entries_.splice(entries_.begin(), entries_, at->second);
        return &at->second->value;
      }
    return nullptr;
  }

  // Adds a value. Returns the least recently used ones that are then too many, so that the caller can destroy them outside
  // of its lock. `kept`: the value is never one of them, and does not count.
  [[nodiscard]] Entries insert(size_t hash, T value, bool kept = false) {
    entries_.push_front({hash, kept, std::move(value)});
    by_hash_.emplace(hash, entries_.begin());
    if (kept) ++kept_;
    Entries out;
    for (auto at = entries_.end(); entries_.size() - kept_ > limit_;) {
      const auto one = std::prev(at);
      if (one->kept)
        at = one;
      else
        remove(one, out);
    }
    return out;
  }

  // Removes and returns the values for which which(value) is true.
  template <class Which>
  [[nodiscard]] Entries remove_if(const Which& which) {
    Entries out;
    for (auto at = entries_.begin(); at != entries_.end();) {
      const auto one = at++;
      if (which(std::as_const(one->value))) remove(one, out);
    }
    return out;
  }

 private:
  using Iterator = typename Entries::iterator;

  void remove(Iterator one, Entries& to) {
    for (auto [at, end] = by_hash_.equal_range(one->hash); at != end; ++at)
      if (at->second == one) {
        by_hash_.erase(at);
        break;
      }
    if (one->kept) --kept_;
    to.splice(to.end(), entries_, one);
  }

  const size_t limit_;
  size_t kept_ = 0;
  Entries entries_;
  std::unordered_multimap<size_t, Iterator> by_hash_;
};

}  // namespace lockstep::detail
