// Chart: the curves of one metric for several runs, ready to be drawn. Plain values; functions are safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "charts/axis.h"
#include "charts/run_metrics.h"

namespace lockstep::charts {

enum class XAxis { step, time, epoch };

struct CurvePoint {
  double x = 0, y = 0;
  double low = 0, high = 0;  // the extremes of the points that it stands for
};

struct Curve {
  std::string name;
  std::vector<CurvePoint> points;
};

struct Chart {
  std::string metric;
  XAxis x = XAxis::step;
  bool logarithmic = false;
  std::vector<Curve> curves;  // in the order of the runs; without points where a run lacks the metric

  // The axes that show all points. On a logarithmic axis these are the positive ones.
  Axis x_axis() const;
  Axis y_axis() const;
  bool empty() const;
  std::vector<Tick> x_ticks(const Axis& axis, int most) const {
    return x == XAxis::time ? duration_ticks(axis, most) : ticks_of(axis, most);
  }
};

struct ChartOptions {
  XAxis x = XAxis::step;
  double smooth = 0;  // weight of the earlier values, 0 to below 1
  bool logarithmic = false;
  int64_t points = 1000;  // of a curve
};

// The curve of one metric of a run. Its y is the mean of each bucket, or the exponential moving average with bias
// correction. x is the step, the seconds since the run started, or the epoch. Throws IoError.
Curve curve_of(RunMetrics& run, const std::string& name, const std::string& metric, const ChartOptions& options);

// The same for buckets that are already known.
Curve curve_of(const std::vector<Bucket>& buckets, double first_time, int64_t steps_per_epoch,
               const ChartOptions& options);

// "step", "time" or "epoch".
std::string x_name(XAxis x);

}  // namespace lockstep::charts
