// Shared parts of the loggers: formatting of numbers and times, and the loggers with a clock and file system that tests
// can replace. Formatting functions are safe from any thread; loggers and Terminal are not thread-safe.
#pragma once

#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/live_line.h"
#include "lockstep/loggers.h"
#include "train/log_file.h"

namespace lockstep::detail {

std::shared_ptr<Logger> console_logger(const ConsoleOptions& options, LogClock clock);
std::shared_ptr<Logger> compact_logger(std::FILE* stream, LogClock clock);
std::shared_ptr<Logger> json_lines_logger(const std::string& dir, FileSystem& files, LogClock clock);
std::shared_ptr<Logger> csv_logger(const std::string& dir, FileSystem& files, LogClock clock);
std::shared_ptr<Logger> tensorboard_logger(const std::string& dir, FileSystem& files, LogClock clock);

// Null if the name is missing.
// The leading scalars of a step: the loss and the metrics of the task.
std::span<const std::pair<std::string, double>> task_scalars(const Scalars& scalars);
// The set that was evaluated, "test_" or "validation_", if the name of a scalar starts with it; else empty.
std::string_view set_of(std::string_view name);

// The rate to show: of the task's unit, such as "tokens_per_second", or else of examples. Null if there is none.
const std::pair<std::string, double>* find_rate(const Scalars& scalars);

const double* find_scalar(const Scalars& scalars, std::string_view name);
// `loss 0.3412`, `84210 examples/s`, `learning_rate 0.001`.
std::string scalar_text(const std::string& name, double value);
// `step 469/4690`, or `step 469` if the total is unknown.
std::string step_text(int64_t step, int64_t total);
// `12 s`, `3 min 20 s`, `2 h 05 min`, `3 d 04 h`.
std::string duration_text(double seconds);

// A stream for terminal output. When a write fails, it prints one warning to stderr and ignores further output.
class Terminal {
 public:
  explicit Terminal(std::FILE* stream);
  // Prints text that ends with a newline, above the live line of the stream.
  void print(std::string_view text);
  LiveLine& line() { return own_ ? *own_ : LiveLine::of_stderr(); }

 private:
  std::FILE* stream_;
  std::unique_ptr<LiveLine> own_;  // null: that of stderr
  bool broken_ = false;
};

}  // namespace lockstep::detail
