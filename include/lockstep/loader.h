// Batches of a data set in an order that (seed, epoch) fixes. One global cursor says what comes next, so that a run
// resumes in the middle of an epoch, at any number of processes, without repeating or skipping an example. Every
// example is used once an epoch: the last batch is smaller when the batch size does not divide their number.
//
//   Loader loader(data.train, {.batch_size = 128, .seed = 7});
//   for (;;) { LoaderBatch batch = loader.next(); ... }
//
// A Loader is used by one thread at a time. A set given as an ImageDataset is resident: it lies in memory once as two
// arrays, and a batch is the list of its rows, gathered inside the compiled step. One given as ImageFiles stays on the
// disk, and a thread of the loader's own reads batches ahead.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/data.h"
#include "lockstep/sharding.h"

namespace lockstep {

class FileSystem;

// The next example: its place in the order of its epoch.
struct Cursor {
  int64_t epoch = 0;
  int64_t sample = 0;
  bool operator==(const Cursor&) const = default;
};

// A permutation of 0 .. n-1 that is computed place by place, with no table: a function of (n, seed, epoch), the same on
// every machine and in every version. A value, safe from any thread.
class Shuffle {
 public:
  // REQUIRES: n >= 0.
  Shuffle(int64_t n, uint64_t seed, int64_t epoch);
  // The example at a place of the order. REQUIRES: 0 <= place < n.
  int64_t operator()(int64_t place) const;

 private:
  static constexpr int kRounds = 8;
  uint64_t n_, rows_, cols_;  // rows_ * cols_ >= n_
  uint64_t keys_[kRounds];
};

struct LoaderOptions {
  int64_t batch_size = 128;  // of all processes together
  uint64_t seed = 0;
  bool shuffle = true;
  // This process takes its part of every batch, as shard_range() cuts it; or, where `part` is given, what that says of
  // a batch of n examples (see process_range).
  int process_index = 0, process_count = 1;
  std::function<Range(int64_t n)> part = {};
  // When the set is not resident: how many batches are read ahead, how long next() waits for one before it throws, and
  // the files (null: the disk), which must outlive the loader.
  int64_t prefetch = 3;
  std::chrono::milliseconds deadline = std::chrono::seconds(60);
  FileSystem* files = nullptr;
};

// What one process gets of a global batch.
struct LoaderBatch {
  Cursor at;                // of the global batch's first example
  int64_t global_size = 0;  // examples in the global batch
  int64_t size = 0;         // examples here; 0 when there are fewer than processes
  bool last_of_epoch = false;
  Array rows;            // resident: i32 [size], rows of images() and labels()
  Array images, labels;  // not resident: u8 [size, rows, cols] and u8 [size]
};

// Several of them, one after the other, of a resident set.
struct LoaderBatches {
  std::vector<LoaderBatch> each;
  Array rows;  // of all of them, i32 [batches, size]
};

class Loader {
 public:
  // Takes the set's memory. Throws Error when the batch is larger than the set, naming both, or is not positive, when
  // the process is not one of their number, and when the set's sizes or labels contradict each other.
  Loader(ImageDataset set, const LoaderOptions& options);
  // Reads the images from the disk as it goes; the labels are kept in memory. Throws as load_idx_pair does when the
  // headers are wrong, and Error for .gz files, in which no row can be found without inflating those before it.
  Loader(const ImageFiles& files, const LoaderOptions& options);
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  int64_t count() const;
  int64_t rows() const;
  int64_t cols() const;
  int64_t classes() const;
  int64_t batch_size() const;  // of all processes together
  int64_t batches_per_epoch() const;

  bool resident() const;
  // The whole set, u8 [count, rows, cols] and [count]. REQUIRES: resident().
  const Array& images() const;
  const Array& labels() const;

  // Of the next batch's first example. It is the same in every process, and says all that a checkpoint has to keep.
  const Cursor& cursor() const;
  // The next batch begins there, also where no batch of this size began before; the end of an epoch is the beginning of
  // the next. Throws Error when it lies outside of the set.
  void seek(const Cursor& cursor);
  // The batch at the cursor, which moves on. Not resident: throws IoError when a read failed or took longer than the
  // deadline; the cursor then stays, and another call tries again.
  LoaderBatch next();

  // How many batches of the full size are left of the epoch, and the next n of them at once.
  // REQUIRES: resident(), 1 <= n <= full_batches_left().
  int64_t full_batches_left() const;
  LoaderBatches next(int64_t n);

  // How many examples this process has handed out, and how long next() took, in seconds.
  int64_t examples_read() const;
  double seconds() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
