// Tables, ages and lengths of time as kubectl prints and reads them, because scripts and eyes are used to them. Pure
// but for Columns, which is used by one thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/model/job.h"

namespace lockstep {

using Row = std::vector<std::string>;

// Columns of text, three spaces apart and at least six wide; the last one of a row is as wide as it is. They never get
// narrower, so that rows that come later stand below those that were printed.
class Columns {
 public:
  // A line for each row.
  std::string lay_out(std::vector<Row> rows);

 private:
  std::vector<size_t> widths_;
};

// "45s", "5m12s", "108m", "3h5m", "2d3h", "8d": the longer, the coarser. "<invalid>" when it has not begun.
std::string age_text(std::chrono::seconds age);

// The time between the two; "<unknown>" when there is no beginning.
std::string age_text(std::optional<JobTime> since, JobTime now);

// "60s", "1m30s", "1.5h", "250ms", or a number of seconds; none when it is no length of time.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

// "2024-12-18T16:47:28Z"; "<none>" when there is none.
std::string time_text(std::optional<JobTime> time);

}  // namespace lockstep
