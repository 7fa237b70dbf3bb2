#include "charts/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::charts {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double x_of(const Bucket& bucket, double first_time, int64_t steps_per_epoch, XAxis x) {
  const double step = (static_cast<double>(bucket.first_step) + static_cast<double>(bucket.last_step)) / 2;
  if (x == XAxis::time) return (bucket.first_time + bucket.last_time) / 2 - first_time;
  return x == XAxis::epoch ? step / static_cast<double>(std::max<int64_t>(steps_per_epoch, 1)) : step;
}

}  // namespace

std::string x_name(XAxis x) {
  if (x == XAxis::time) return "time";
  return x == XAxis::epoch ? "epoch" : "step";
}

Axis Chart::x_axis() const {
  double low = kInfinity, high = -kInfinity;
  for (const Curve& curve : curves)
    for (const CurvePoint& point : curve.points) low = std::min(low, point.x), high = std::max(high, point.x);
  if (low > high) return {};
  // The first step is 1, and the first evaluation after an epoch: close to where the run began.
  if (low > 0 && low < high && low < 0.1 * high) low = 0;
  return axis_for(low, high, false);
}

Axis Chart::y_axis() const {
  double low = kInfinity, high = -kInfinity;
  for (const Curve& curve : curves)
    for (const CurvePoint& point : curve.points)
      for (const double y : {point.low, point.y, point.high})
        if (!logarithmic || y > 0) low = std::min(low, y), high = std::max(high, y);
  return low > high ? Axis{.low = 1, .high = 10, .logarithmic = logarithmic} : axis_for(low, high, logarithmic);
}

bool Chart::empty() const {
  return std::all_of(curves.begin(), curves.end(), [](const Curve& curve) { return curve.points.empty(); });
}

Curve curve_of(const std::vector<Bucket>& buckets, double first_time, int64_t steps_per_epoch,
               const ChartOptions& options) {
  Curve out;
  double average = 0, weight = 0;
  for (const Bucket& bucket : buckets) {
    if (bucket.count == 0) continue;
    CurvePoint point{.x = x_of(bucket, first_time, steps_per_epoch, options.x),
                     .y = bucket.mean(),
                     .low = bucket.min,
                     .high = bucket.max};
    if (!std::isfinite(point.x)) continue;
    if (options.smooth > 0) {
      // As many updates as the bucket has points.
      const double kept = std::pow(options.smooth, static_cast<double>(bucket.count));
      average = kept * average + (1 - kept) * point.y;
      weight = kept * weight + (1 - kept);
      point.y = point.low = point.high = average / weight;
    }
    out.points.push_back(point);
  }
  return out;
}

Curve curve_of(RunMetrics& run, const std::string& name, const std::string& metric, const ChartOptions& options) {
  Curve out;
  if (const auto found = run.series().find(metric); found != run.series().end() && !found->second.buckets().empty()) {
    const std::vector<Bucket>& all = found->second.buckets();
    out = curve_of(run.query(metric, all.front().first_step, all.back().last_step, options.points), run.first_time(),
                   run.steps_per_epoch(), options);
  }
  out.name = name;
  return out;
}

}  // namespace lockstep::charts
