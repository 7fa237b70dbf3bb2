// BatchOrder: splits the global order of a set into batches, and computes the part of each batch that a process loads.
// Not thread-safe; copies are independent.
#pragma once

#include <algorithm>
#include <span>

#include "lockstep/loader.h"

namespace lockstep::detail {

class BatchOrder {
 public:
  // Throws Error when the options are invalid or do not fit the set.
  BatchOrder(int64_t count, const LoaderOptions& options);

  int64_t count() const { return count_; }
  int64_t batches_per_epoch() const { return (count_ + batch_size_ - 1) / batch_size_; }

  // The same position with sample < count: the end of an epoch becomes the beginning of the next. Throws Error when the
  // position does not exist.
  Cursor normalized(const Cursor& cursor) const;

  // The batch that begins at a position, without its arrays. REQUIRES: the cursor is normalized.
  LoaderBatch batch(const Cursor& at) const;
  Cursor after(const LoaderBatch& batch) const;

  // The rows of this process's part. REQUIRES: `out` has room for batch.size elements.
  template <class Row>
  void rows(const LoaderBatch& batch, const Source& source, Row* out) {
    const int64_t first = batch.at.sample + part(batch.global_size).begin, epoch = batch.at.epoch;
    if (!shuffle_) {
      for (int64_t i = 0; i < batch.size; ++i) out[i] = static_cast<Row>(source.row(epoch, first + i));
      return;
    }
    if (epoch != epoch_) permutation_ = Shuffle(count_, seed_, epoch_ = epoch);
    const Shuffle permutation = permutation_;  // a copy, which `out` cannot alias
    for (int64_t i = 0; i < batch.size; ++i) out[i] = static_cast<Row>(source.row(epoch, permutation(first + i)));
  }

 private:
  // This process's part of a batch of `size` examples.
  Range part(int64_t size) const;

  int64_t count_, batch_size_;
  uint64_t seed_;
  bool shuffle_;
  int process_index_, process_count_;
  std::function<Range(int64_t)> part_;
  int64_t epoch_ = 0;  // the epoch of permutation_
  Shuffle permutation_;
};

}  // namespace lockstep::detail
