// Loader: produces batches of a Source in an order determined by (seed, epoch). Its state is a global cursor, so a run
// can resume in the middle of an epoch, with any number of processes, without repeating or skipping an example. Every
// example is used once per epoch; the last batch is smaller if the batch size does not divide their number.
//
//   Loader loader(array_source({{"x", x}, {"y", y}}), {.batch_size = 128, .seed = 7});
//   for (;;) { LoaderBatch batch = loader.next(); ... }
//
// A batch of a resident source is a list of row numbers that the compiled step gathers. For a streamed source, a
// background thread reads batches ahead. Not thread-safe.
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
#include "lockstep/source.h"

namespace lockstep {

// The position of the next example in the order of its epoch.
struct Cursor {
  int64_t epoch = 0;
  int64_t sample = 0;
  bool operator==(const Cursor&) const = default;
};

// A permutation of 0 .. n-1, a function of (n, seed, epoch). Each position is computed on its own, without a table. The
// same on every machine and in every version. Immutable, safe from any thread.
class Shuffle {
 public:
  // REQUIRES: n >= 0.
  Shuffle(int64_t n, uint64_t seed, int64_t epoch);
  // The example at a position of the order. REQUIRES: 0 <= position < n.
  int64_t operator()(int64_t position) const;

 private:
  static constexpr int kRounds = 8;
  uint64_t n_, rows_, cols_;  // rows_ * cols_ >= n_
  uint64_t keys_[kRounds];
};

struct LoaderOptions {
  int64_t batch_size = 128;  // over all processes
  uint64_t seed = 0;
  bool shuffle = true;
  // The part of every batch that this process loads: as split by shard_range(), or, if `part` is given, the range that
  // it returns for a batch of n examples (see process_range).
  int process_index = 0, process_count = 1;
  std::function<Range(int64_t n)> part = {};
  // For streamed sources: the number of batches to read ahead, and the maximum wait of next().
  int64_t prefetch = 3;
  std::chrono::milliseconds deadline = std::chrono::seconds(60);
};

// The part of a global batch that one process loads.
struct LoaderBatch {
  Cursor at;                // the position of the global batch's first example
  int64_t global_size = 0;  // examples in the global batch
  int64_t size = 0;         // examples of this process; may be 0 if there are more processes than examples
  bool last_of_epoch = false;
  Array rows;          // resident: i32 [size], the rows of Source::gather()
  BatchArrays fields;  // streamed: [size, ...] each
};

// Several consecutive batches of a resident source.
struct LoaderBatches {
  std::vector<LoaderBatch> each;
  Array rows;  // the row numbers of all batches, i32 [batches, size]
};

class Loader {
 public:
  // Throws Error when the batch size is not positive or larger than the source, or the process index is out of range.
  Loader(SourcePtr source, const LoaderOptions& options);
  // Same, with image_source(set) and image_source(files).
  Loader(ImageDataset set, const LoaderOptions& options);
  Loader(const ImageFiles& files, const LoaderOptions& options);
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  const SourcePtr& source() const;
  int64_t count() const;       // examples in an epoch
  int64_t batch_size() const;  // over all processes
  int64_t batches_per_epoch() const;
  bool resident() const;

  // The position of the next batch's first example. It is equal in all processes, and is the complete state to store in
  // a checkpoint.
  const Cursor& cursor() const;
  // Makes the next batch begin at any position; the end of an epoch means the beginning of the next. Throws Error when
  // it is outside of the set.
  void seek(const Cursor& cursor);
  // Returns the batch at the cursor and advances the cursor. For a streamed source, throws IoError when a read failed or
  // took longer than the deadline; the cursor is then unchanged, and the next call tries again.
  LoaderBatch next();

  // The number of full batches left in the epoch, and the next n of them.
  // REQUIRES: resident(), 1 <= n <= full_batches_left().
  int64_t full_batches_left() const;
  LoaderBatches next(int64_t n);

  // The number of examples this process has loaded, and the total time spent in next(), in seconds.
  int64_t examples_read() const;
  double seconds() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
