#include "data/batch_order.h"

#include "base/check.h"

namespace lockstep::detail {

BatchOrder::BatchOrder(int64_t count, const LoaderOptions& options)
    : count_(count),
      batch_size_(options.batch_size),
      seed_(options.seed),
      shuffle_(options.shuffle),
      process_index_(options.process_index),
      process_count_(options.process_count),
      part_(options.part),
      permutation_(count, options.seed, 0) {
  if (batch_size_ < 1) throw_error("loader: the batch size is {}; give at least 1", batch_size_);
  if (batch_size_ > count_)
    throw_error("loader: the batch size is {}, but the set has {} examples; use at most {}", batch_size_, count_,
                count_);
  if (process_count_ < 1 || process_index_ < 0 || process_index_ >= process_count_)
    throw_error("loader: process_index is {} and process_count {}; give an index from 0 to the count minus 1",
                process_index_, process_count_);
}

Cursor BatchOrder::normalized(const Cursor& cursor) const {
  if (cursor.epoch < 0 || cursor.sample < 0 || cursor.sample > count_)
    throw_error("loader: sample {} of epoch {} does not exist; samples are numbered from 0 to {}, epochs from 0",
                cursor.sample, cursor.epoch, count_ - 1);
  return cursor.sample == count_ ? Cursor{cursor.epoch + 1, 0} : cursor;
}

LoaderBatch BatchOrder::batch(const Cursor& at) const {
  LoaderBatch batch;
  batch.at = at;
  batch.global_size = std::min(batch_size_, count_ - at.sample);
  batch.size = part(batch.global_size).size();
  batch.last_of_epoch = at.sample + batch.global_size == count_;
  return batch;
}

Cursor BatchOrder::after(const LoaderBatch& batch) const {
  return batch.last_of_epoch ? Cursor{batch.at.epoch + 1, 0}
                             : Cursor{batch.at.epoch, batch.at.sample + batch.global_size};
}

Range BatchOrder::part(int64_t size) const {
  if (!part_) return shard_range(size, process_count_, process_index_);
  const Range range = part_(size);
  if (range.begin < 0 || range.end < range.begin || range.end > size)
    throw_error("loader: `part` returned the examples {} to {} of a batch of {}; return a range within the batch",
                range.begin, range.end, size);
  return range;
}

}  // namespace lockstep::detail
