// The text of the progress bar: a pure function of the progress, the width of the terminal and what it can show. And
// LossHistory, the losses of its sparkline, which is used by one thread.
#pragma once

#include <string>
#include <vector>

#include "base/terminal_style.h"
#include "lockstep/loggers.h"

namespace lockstep::detail {

struct Progress {
  int64_t step = 0, total = 0;  // total 0: unknown
  int64_t steps_per_epoch = 0;  // 0: unknown
  Scalars metrics = {};         // the loss first, as the task names them
  double rate = 0;              // 0: unknown
  std::string rate_unit = {};   // "examples", "tokens", "steps"
  double seconds_left = -1;     // -1: unknown
  std::vector<double> losses = {};
  std::string activity = {};  // replaces the rate, such as "evaluating"
};

// At most `columns` wide. The narrower, the fewer items it has; the remaining time is omitted last:
//
//   epoch 2/3 ▕███████▍          ▏  41%   584/1407  loss 0.1291 █▅▃▂▂▁▁▁  accuracy 0.9609  14986 examples/s  8 s left
//   epoch 2/3 ▕████▌     ▏  41%   584/1407  loss 0.1291  accuracy 0.9609  15.0k/s  8s
//   ▕█▋  ▏  41%   584/1407  loss 0.1291  8s
//    584/1407  8s
std::string progress_line(const Progress& progress, size_t columns, const TerminalStyle& style);

// The bar alone, of this width with its frame. `done`: 0 to 1. It is full only at 1.
std::string bar_text(double done, size_t columns, const TerminalStyle& style);

// One character for each of the last `columns` values, from the lowest to the highest of them. Values that are not
// finite have the highest one.
std::string sparkline(const std::vector<double>& values, size_t columns, const TerminalStyle& style);

// "950", "15.0k", "1.2M".
std::string short_number(double value);
// "8s", "3m20s", "2h05m", "3d04h".
std::string short_duration(double seconds);

// The means of the losses of a run in at most kMaxBuckets parts of equal length. A part of the run stays small at the
// beginning and grows with it: when all parts are full, each two become one.
class LossHistory {
 public:
  static constexpr size_t kMaxBuckets = 64;

  void add(double loss);
  const std::vector<double>& means() const { return means_; }

 private:
  std::vector<double> means_;  // the last one is of `count_` losses
  int64_t per_bucket_ = 1, count_ = 1;
};

}  // namespace lockstep::detail
