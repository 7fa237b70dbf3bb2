#include "charts/series.h"

#include <algorithm>
#include <cmath>

namespace lockstep::charts {

Bucket bucket_of(int64_t step, double time, double value) {
  Bucket out{.first_step = step, .last_step = step, .first_time = time, .last_time = time};
  if (std::isfinite(value)) {
    out.min = out.max = out.sum = value;
    out.count = 1;
  } else {
    out.bad = 1;
  }
  return out;
}

double Bucket::mean() const {
  return std::isfinite(sum) ? std::clamp(sum / static_cast<double>(count), min, max) : min / 2 + max / 2;
}

void Bucket::merge(const Bucket& next) {
  last_step = std::max(last_step, next.last_step);
  last_time = next.last_time;
  if (next.count > 0) {
    min = count > 0 ? std::min(min, next.min) : next.min;
    max = count > 0 ? std::max(max, next.max) : next.max;
    sum += next.sum;
  }
  count += next.count;
  bad += next.bad;
}

void Series::add(int64_t step, double time, double value) {
  const bool repeats = !buckets_.empty() && buckets_.back().last_step > step;
  while (repeats && !buckets_.empty() && buckets_.back().first_step >= step) {
    points_ -= buckets_.back().points();
    buckets_.pop_back();
  }
  const Bucket point = bucket_of(step, time, value);
  if (!buckets_.empty() && buckets_.back().points() < per_bucket_) {
    buckets_.back().merge(point);
  } else {
    if (buckets_.size() >= capacity_) merge_pairs();
    buckets_.push_back(point);
  }
  ++points_;
  last_ = value;
}

void Series::merge_pairs() {
  size_t kept = 0;
  for (size_t i = 0; i < buckets_.size(); i += 2) {
    Bucket merged = buckets_[i];
    if (i + 1 < buckets_.size()) merged.merge(buckets_[i + 1]);
    buckets_[kept++] = merged;
  }
  buckets_.resize(kept);
  per_bucket_ *= 2;
}

void Series::set_capacity(size_t capacity) {
  capacity_ = capacity;
  while (buckets_.size() > capacity_) merge_pairs();
  if (buckets_.capacity() > 2 * capacity_) buckets_.shrink_to_fit();
}

std::vector<Bucket> buckets_between(const std::vector<Bucket>& buckets, int64_t from, int64_t to, int64_t columns) {
  std::vector<Bucket> out;
  if (to < from) return out;
  const auto first =
      std::partition_point(buckets.begin(), buckets.end(), [&](const Bucket& each) { return each.last_step < from; });
  const auto begin = static_cast<double>(from);  // differences of integers could overflow
  const double width = static_cast<double>(to) - begin + 1;
  int64_t column = -1;
  for (auto at = first; at != buckets.end() && at->first_step <= to; ++at) {
    const double part = (static_cast<double>(std::max(at->first_step, from)) - begin) / width;
    const auto its_column = std::min(columns - 1, static_cast<int64_t>(part * static_cast<double>(columns)));
    if (its_column > column) {
      out.push_back(*at);
      column = its_column;
    } else {
      out.back().merge(*at);
    }
  }
  return out;
}

}  // namespace lockstep::charts
