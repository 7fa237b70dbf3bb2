// What the loggers share: how numbers and times read, and the loggers themselves with their seams open for tests.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/loggers.h"
#include "train/log_file.h"

namespace lockstep::detail {

std::shared_ptr<Logger> console_logger(const ConsoleOptions& options, LogClock clock);
std::shared_ptr<Logger> compact_logger(std::FILE* stream, LogClock clock);
std::shared_ptr<Logger> json_lines_logger(const std::string& dir, FileSystem& files, LogClock clock);
std::shared_ptr<Logger> csv_logger(const std::string& dir, FileSystem& files, LogClock clock);
std::shared_ptr<Logger> tensorboard_logger(const std::string& dir, FileSystem& files, LogClock clock);

// Null when there is none of that name.
const double* find_scalar(const Scalars& scalars, std::string_view name);
// `loss 0.3412`, `84210 examples/s`, `learning_rate 0.001`.
std::string scalar_text(const std::string& name, double value);
// `step 469/4690`, or `step 469` when the total is not known.
std::string step_text(int64_t step, int64_t total);
// `12 s`, `3 min 20 s`, `2 h 05 min`, `3 d 04 h`.
std::string duration_text(double seconds);

// A stream for people that falls silent, with one word on stderr, when it cannot be written any more.
class Terminal {
 public:
  explicit Terminal(std::FILE* stream) : stream_(stream) {}
  void print(std::string_view text);

 private:
  std::FILE* stream_;
  bool broken_ = false;
};

// What a progress line says.
struct Progress {
  int64_t step = 0, total = 0;
  const Scalars* scalars = nullptr;
  double steps_per_second = 0, seconds_left = -1;  // not known: 0, -1
};
// `84210 examples/s`, else `12.5 steps/s`, else nothing.
std::string rate_text(const Progress& progress);
// `step 100/4690  2 % [====>      ]  84210 examples/s  loss 0.3412  accuracy 0.9012  12 s left`, never longer than
// `width`: what does not fit is left out, the bar first, then from the right.
std::string progress_line(const Progress& progress, int64_t width);

}  // namespace lockstep::detail
