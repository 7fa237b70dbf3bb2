// Tables, ages and durations in kubectl's format, which scripts and users expect. Functions are pure and safe from any
// thread; a TableLayout is used by one thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/model/job.h"

namespace lockstep {

using TableRow = std::vector<std::string>;

// Aligns columns: three spaces apart, at least six characters wide, the last one unpadded. Widths never shrink between
// calls, so that rows printed later (`get -w`) align with earlier ones.
class TableLayout {
 public:
  // `color`: states have colors, such as a red "Failed". See terminal_style().
  explicit TableLayout(bool color = false) : color_(color) {}

  // Returns one line for each row. Unprintable characters are escaped.
  std::string format(std::vector<TableRow> rows);

 private:
  bool color_;
  std::vector<size_t> widths_;
};

// "45s", "5m12s", "108m", "3h5m", "2d3h", "8d": coarser for longer ages. "<invalid>" for a negative age.
std::string age_text(std::chrono::seconds age);

// The age from `since` to `now`; "<unknown>" if `since` is not set.
std::string age_text(std::optional<JobTime> since, JobTime now);

// Parses "60s", "1m30s", "1.5h", "250ms" or a number of seconds; nullopt if the text is not a duration.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

// "2024-12-18T16:47:28Z"; "<none>" if the time is not set.
std::string time_text(std::optional<JobTime> time);

}  // namespace lockstep
