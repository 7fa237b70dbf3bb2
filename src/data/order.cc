#include "data/order.h"

#include "base/check.h"

namespace lockstep::detail {

Order::Order(int64_t count, const LoaderOptions& options)
    : count_(count),
      batch_size_(options.batch_size),
      seed_(options.seed),
      shuffle_(options.shuffle),
      process_index_(options.process_index),
      process_count_(options.process_count),
      part_(options.part),
      permutation_(count, options.seed, 0) {
  if (batch_size_ < 1) throw_error("loader: a batch of {} examples; the batch size must be at least 1", batch_size_);
  if (batch_size_ > count_)
    throw_error("loader: a batch of {} examples of a set of {}; choose a batch size of at most {}", batch_size_, count_,
                count_);
  if (process_count_ < 1 || process_index_ < 0 || process_index_ >= process_count_)
    throw_error("loader: process {} of {}; processes are numbered from 0 to their number less one", process_index_,
                process_count_);
}

Cursor Order::normalised(const Cursor& cursor) const {
  if (cursor.epoch < 0 || cursor.sample < 0 || cursor.sample > count_)
    throw_error("loader: there is no sample {} in epoch {}; the set has {} samples, numbered from 0 in every epoch",
                cursor.sample, cursor.epoch, count_);
  return cursor.sample == count_ ? Cursor{cursor.epoch + 1, 0} : cursor;
}

LoaderBatch Order::batch(const Cursor& at) const {
  LoaderBatch batch;
  batch.at = at;
  batch.global_size = std::min(batch_size_, count_ - at.sample);
  batch.size = part(batch.global_size).size();
  batch.last_of_epoch = at.sample + batch.global_size == count_;
  return batch;
}

Cursor Order::after(const LoaderBatch& batch) const {
  return batch.last_of_epoch ? Cursor{batch.at.epoch + 1, 0}
                             : Cursor{batch.at.epoch, batch.at.sample + batch.global_size};
}

Range Order::part(int64_t size) const {
  if (!part_) return shard_range(size, process_count_, process_index_);
  const Range range = part_(size);
  if (range.begin < 0 || range.end < range.begin || range.end > size)
    throw_error("loader: `part` gives the examples {} to {} of a batch of {}; they must lie in it, in order",
                range.begin, range.end, size);
  return range;
}

}  // namespace lockstep::detail
