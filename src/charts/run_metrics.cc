#include "charts/run_metrics.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace lockstep::charts {
namespace {

constexpr int64_t kPlaceBytes = int64_t{1} << 18;  // between two places of the file
constexpr size_t kMaxPlaces = size_t{1} << 20;
constexpr size_t kMaxStarts = 10'000;

}  // namespace

RunMetrics::RunMetrics(std::string path, FileSystem& files, MetricsLimits limits)
    : path_(path), files_(files), limits_(limits), reader_(std::move(path), files) {}

bool RunMetrics::update(int64_t most) {
  return reader_.read(
      {.line = [this](const MetricLine& line, int64_t offset) { add(line, offset); }, .restart = [this] { restart(); }},
      most);
}

void RunMetrics::restart() {
  order_.clear();
  series_.clear();
  ignored_.clear();
  starts_.clear();
  messages_.clear();
  places_.clear();
  title_.clear();
  config_.clear();
  result_.clear();
  capacity_ = kMaxBuckets;
  has_ended_ = false;
  total_steps_ = steps_per_epoch_ = last_step_ = 0;
  first_time_ = last_time_ = 0;
  ++version_;
  ++generation_;
}

Series* RunMetrics::series_of(std::string_view tag, size_t position) {
  if (position < order_.size() && *order_[position].first == tag) return order_[position].second;
  auto found = series_.find(tag);
  if (found == series_.end()) {
    if (series_.size() >= limits_.tags) {
      if (ignored_.size() < limits_.tags) ignored_.try_emplace(std::string(tag));
      return nullptr;
    }
    const size_t share = std::bit_floor(std::max<size_t>(limits_.buckets / (series_.size() + 1), 1));
    if (const size_t capacity = std::clamp(share, kMinBuckets, kMaxBuckets); capacity < capacity_) {
      capacity_ = capacity;
      for (auto& [name, each] : series_) each.set_capacity(capacity_);
    }
    found = series_.emplace(std::string(tag), Series(capacity_)).first;
  }
  if (position < order_.size())
    order_[position] = {&found->first, &found->second};
  else if (position == order_.size())
    order_.emplace_back(&found->first, &found->second);
  return &found->second;
}

void RunMetrics::add_scalars(const MetricLine& line) {
  for (size_t i = 0; i < line.scalars.size(); ++i)
    if (Series* series = series_of(line.scalars[i].first, i)) series->add(line.step, line.time, line.scalars[i].second);
}

void RunMetrics::add(const MetricLine& line, int64_t offset) {
  ++version_;
  if (first_time_ == 0) first_time_ = line.time;
  last_time_ = line.time;
  last_step_ = line.step;
  has_ended_ = line.kind == MetricLine::Kind::end;
  if (places_.size() < kMaxPlaces && (places_.empty() || offset - places_.back().offset >= kPlaceBytes) &&
      (places_.empty() || line.step >= places_.back().step))
    places_.push_back({line.step, offset});
  switch (line.kind) {
    case MetricLine::Kind::start:
      if (starts_.size() < kMaxStarts) starts_.push_back({line.step, line.time});
      title_ = line.title;
      config_ = line.config;
      total_steps_ = line.total_steps;
      steps_per_epoch_ = line.steps_per_epoch;
      break;
    case MetricLine::Kind::message:
      if (messages_.size() >= limits_.messages) messages_.erase(messages_.begin());
      messages_.push_back({line.step, line.time, line.alarm, line.text});
      break;
    case MetricLine::Kind::end:
      result_.clear();
      for (const auto& [name, value] : line.scalars) result_.emplace_back(name, value);
      break;
    case MetricLine::Kind::step:
    case MetricLine::Kind::evaluation:
      add_scalars(line);
  }
}

std::vector<Bucket> RunMetrics::query(std::string_view tag, int64_t from, int64_t to, int64_t columns, int64_t most) {
  const auto found = series_.find(tag);
  if (found == series_.end() || columns < 1 || to < from) return {};
  const Series& series = found->second;
  if (series.points_per_bucket() > 1) {
    const auto stored = static_cast<int64_t>(buckets_between(series.buckets(), from, to, columns).size());
    if (2 * stored < columns) {
      std::vector<Bucket> finer = read_buckets(tag, from, to, columns, most);
      if (!finer.empty()) return finer;
    }
  }
  return buckets_between(series.buckets(), from, to, columns);
}

std::vector<Bucket> RunMetrics::read_buckets(std::string_view tag, int64_t from, int64_t to, int64_t columns,
                                             int64_t most) {
  const auto after =
      std::partition_point(places_.begin(), places_.end(), [&](const Place& place) { return place.step < from; });
  const int64_t begin = after == places_.begin() ? 0 : std::prev(after)->offset;
  const auto behind = std::partition_point(after, places_.end(), [&](const Place& place) { return place.step <= to; });
  const int64_t end = behind == places_.end() ? reader_.offset() : behind->offset;
  if (end - begin > most) return {};
  std::vector<Bucket> points;
  read_metric_lines(files_, path_, begin, end - begin, [&](const MetricLine& line) {
    if (line.kind != MetricLine::Kind::step && line.kind != MetricLine::Kind::evaluation) return true;
    if (line.step > to) return false;
    if (line.step < from) return true;
    for (const auto& [name, value] : line.scalars)
      if (name == tag) points.push_back(bucket_of(line.step, line.time, value));
    return true;
  });
  std::stable_sort(points.begin(), points.end(),
                   [](const Bucket& a, const Bucket& b) { return a.first_step < b.first_step; });
  return buckets_between(points, from, to, columns);
}

}  // namespace lockstep::charts
