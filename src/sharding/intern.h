// InternTable: one immutable copy of each value, kept for good, so that equal values have equal addresses. T has == and
// a member hash(). Safe from any thread.
#pragma once

#include <mutex>
#include <unordered_set>
#include <utility>

namespace lockstep::detail {

template <class T>
class InternTable {
 public:
  const T* intern(T value) {
    const std::lock_guard lock(mutex_);
    return &*values_.insert(std::move(value)).first;
  }

 private:
  struct Hash {
    size_t operator()(const T& value) const { return value.hash(); }
  };

  std::mutex mutex_;
  std::unordered_set<T, Hash> values_;  // its elements do not move
};

}  // namespace lockstep::detail
