// Series: the values of one metric in bounded memory. Neighboring points share a bucket with their smallest and largest
// value, so that no spike is lost. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::charts {

struct Bucket {
  int64_t first_step = 0, last_step = 0;
  double first_time = 0, last_time = 0;
  double min = 0, max = 0, sum = 0;  // of the finite values; REQUIRES: count > 0
  int64_t count = 0;                 // finite values
  int64_t bad = 0;                   // values that are not finite

  // Between min and max, also if the sum has overflown.
  double mean() const;
  int64_t points() const { return count + bad; }
  // Adds the points of the next bucket.
  void merge(const Bucket& next);
};

Bucket bucket_of(int64_t step, double time, double value);

class Series {
 public:
  // Keeps at most `capacity` buckets. REQUIRES: capacity >= 2.
  explicit Series(size_t capacity) : capacity_(capacity) {}

  // Appends a point. Drops the buckets from this step on first: a resumed run repeats steps.
  void add(int64_t step, double time, double value);
  // Merges buckets until at most `capacity` are left.
  void set_capacity(size_t capacity);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  // Points of each bucket but the last one.
  int64_t points_per_bucket() const { return per_bucket_; }
  double last_value() const { return last_; }
  int64_t points() const { return points_; }

 private:
  void merge_pairs();

  std::vector<Bucket> buckets_;
  size_t capacity_;
  int64_t per_bucket_ = 1, points_ = 0;
  double last_ = 0;
};

// The buckets that overlap the steps from `from` to `to`, merged into at most `columns`, each for an equal part of the
// steps. REQUIRES: columns > 0.
std::vector<Bucket> buckets_between(const std::vector<Bucket>& buckets, int64_t from, int64_t to, int64_t columns);

}  // namespace lockstep::charts
