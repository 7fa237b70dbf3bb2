// InternTable: stores one immutable copy of each value, never freed, so that equal values have equal
// addresses. T needs == and a member hash(). Safe to use from any thread.
#pragma once

#include <mutex>
#include <unordered_set>
#include <utility>

namespace lockstep::detail {

template <class T>
class InternTable {
 public:
  // Returns the address of the stored copy.
  const T* intern(T value) {
    const std::lock_guard lock(mutex_);
    return &*values_.insert(std::move(value)).first;
  }

 private:
  struct Hash {
    size_t operator()(const T& value) const { return value.hash(); }
  };

  std::mutex mutex_;
  std::unordered_set<T, Hash> values_;  // elements never move
};

}  // namespace lockstep::detail
