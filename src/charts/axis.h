// The axis of a chart: its range, round ticks and their labels. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

namespace lockstep::charts {

struct Tick {
  double value = 0;
  std::string label;
};

// A range of values that is shown on a line, at linear or logarithmic scale.
struct Axis {
  double low = 0, high = 1;  // REQUIRES: low < high; 0 < low if logarithmic
  bool logarithmic = false;

  // Where the value is: 0 at `low`, 1 at `high`.
  double position(double value) const;
};

// An axis that shows all values from `low` to `high`. A range without extent is extended. On a logarithmic axis, values
// of 0 and less are not shown: `low` is the smallest positive value.
Axis axis_for(double low, double high, bool logarithmic);

// At most `most` round values within the axis, in order, and at least one. REQUIRES: most >= 2.
std::vector<Tick> ticks_of(const Axis& axis, int most);

// `1.5`, `12k`, `3M`, `1e-05`: a number in few characters.
std::string short_number(double value);
// `0:45`, `12:30`, `2:05:00`, `3d 4h`: a duration in few characters.
std::string short_duration(double seconds);
// Ticks at round durations.
std::vector<Tick> duration_ticks(const Axis& axis, int most);

}  // namespace lockstep::charts
