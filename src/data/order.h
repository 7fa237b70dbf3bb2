// Which examples come when: the global order of a set cut into batches, and the part of each that one process takes.
// Copies are independent; one is used by one thread at a time.
#pragma once

#include <algorithm>
#include <span>

#include "lockstep/loader.h"

namespace lockstep::detail {

class Order {
 public:
  // Throws Error when the options do not fit each other or the set.
  Order(int64_t count, const LoaderOptions& options);

  int64_t count() const { return count_; }
  int64_t batches_per_epoch() const { return (count_ + batch_size_ - 1) / batch_size_; }

  // The same place with sample < count: the end of an epoch is the beginning of the next. Throws Error when there is no
  // such place.
  Cursor normalised(const Cursor& cursor) const;

  // The batch that begins there, without any arrays. REQUIRES: the cursor is normalised.
  LoaderBatch batch(const Cursor& at) const;
  Cursor after(const LoaderBatch& batch) const;

  // The examples of this process's part. REQUIRES: there is room for batch.size of them.
  template <class Row>
  void rows(const LoaderBatch& batch, Row* out) {
    const int64_t first = batch.at.sample + part(batch.global_size).begin;
    if (!shuffle_) {
      for (int64_t i = 0; i < batch.size; ++i) out[i] = static_cast<Row>(first + i);
      return;
    }
    if (batch.at.epoch != epoch_) permutation_ = Shuffle(count_, seed_, epoch_ = batch.at.epoch);
    const Shuffle permutation = permutation_;  // whose keys `out` cannot alias
    for (int64_t i = 0; i < batch.size; ++i) out[i] = static_cast<Row>(permutation(first + i));
  }

 private:
  // Of a batch of so many examples, this process's.
  Range part(int64_t size) const;

  int64_t count_, batch_size_;
  uint64_t seed_;
  bool shuffle_;
  int process_index_, process_count_;
  std::function<Range(int64_t)> part_;
  int64_t epoch_ = 0;  // of the permutation
  Shuffle permutation_;
};

}  // namespace lockstep::detail
