#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "base/names.h"
#include "base/os/environment.h"
#include "train/logging.h"

namespace lockstep {
namespace detail {
namespace {

constexpr double kRedrawSeconds = 0.1;

// Whether the stream is a terminal on which a line can be overwritten.
bool can_redraw(std::FILE* stream) {
  const int fd = ::fileno(stream);
  return fd >= 0 && ::isatty(fd) == 1 && environment_variable("TERM") != "dumb";
}

int64_t terminal_width(std::FILE* stream) {
  winsize size = {};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const std::optional<std::string> columns = environment_variable("COLUMNS");
  const int64_t width = columns ? std::atoll(columns->c_str()) : 0;
  return width > 0 ? width : 80;
}

class ConsoleLogger final : public Logger {
 public:
  ConsoleLogger(const ConsoleOptions& options, LogClock clock)
      : stream_(options.stream),
        every_(options.every),
        clock_(std::move(clock)),
        redraws_(can_redraw(options.stream)),
        color_(redraws_ && options.color && !environment_variable("NO_COLOR")),
        terminal_(options.stream) {}

  ~ConsoleLogger() override {
    if (drawn_) terminal_.print("\n");  // the run was aborted: end the line of the progress bar
  }

  void begin(const RunInfo& info) override {
    total_ = info.total_steps;
    steps_per_epoch_ = info.steps_per_epoch;
    began_ = clock_.steady_seconds();
    first_step_ = -1;
    std::string text = info.title;
    if (total_ > 0) text += (text.empty() ? "" : ": ") + counted(total_, "step");
    if (info.first_step > 0) text += fmt::format("{}resumed after step {}", text.empty() ? "" : ", ", info.first_step);
    if (!text.empty()) line(text);
  }

  void step(int64_t step, const Scalars& scalars) override {
    if (redraws_) {
      const double now = clock_.steady_seconds();
      if (first_step_ >= 0 && now - drawn_at_ < kRedrawSeconds && step != total_) return;
      draw(step, scalars, now);
    } else {
      if (first_step_ >= 0 && step < next_) return;
      next_ = (step / every_ + 1) * every_;
      line(step_line(step, scalars, clock_.steady_seconds()));
    }
  }

  void evaluation(int64_t step, const Scalars& scalars) override {
    std::string text = step_text(step, total_);
    for (const auto& [name, value] : scalars) text += "  " + scalar_text(name, value);
    evaluated_ = step;
    line(painted(text, "\033[1m"));
  }

  void message(int64_t, const std::string& text, bool alarm) override {
    line(alarm ? painted("alarm:", "\033[1;31m") + " " + painted(text, "\033[33m") : text);
  }

  void end(int64_t step, const Scalars& metrics) override {
    bar_.clear();  // the last line replaces it
    std::string text = (step < total_ ? "ended  " : "done  ") + step_text(step, total_);
    for (const auto& [name, value] : task_scalars(metrics)) text += "  " + scalar_text(name, value);
    if (const auto* rate = find_rate(metrics)) text += "  " + scalar_text(rate->first, rate->second);
    for (const auto& [name, value] : metrics)
      if (!set_of(name).empty() && step != evaluated_)  // not already printed by evaluation()
        text += "  " + scalar_text(name, value);
    if (began_ >= 0) text += "  " + duration_text(clock_.steady_seconds() - began_);
    line(painted(text, "\033[1m"));
  }

 private:
  ProgressValues progress(int64_t step, const Scalars& scalars, double now) {
    if (first_step_ < 0) first_step_ = step, first_at_ = now;
    ProgressValues out{.step = step, .total = total_, .scalars = &scalars};
    // Measured from the end of the first step, which compiles. Includes evaluations, which the remaining time does too.
    const auto steps = static_cast<double>(step - first_step_);
    if (steps > 0 && now > first_at_) {
      out.steps_per_second = steps / (now - first_at_);
      if (total_ > 0)
        out.seconds_left = static_cast<double>(std::max<int64_t>(total_ - step, 0)) / out.steps_per_second;
    }
    return out;
  }

  std::string step_line(int64_t step, const Scalars& scalars, double now) {
    const ProgressValues known = progress(step, scalars, now);
    std::string text = step_text(step, total_);
    for (const auto& [name, value] : task_scalars(scalars)) text += "  " + scalar_text(name, value);
    if (const std::string rate = rate_text(known); !rate.empty()) text += "  " + rate;
    if (steps_per_epoch_ > 0)
      text += fmt::format("  epoch {:.1f}", static_cast<double>(step) / static_cast<double>(steps_per_epoch_));
    if (known.seconds_left >= 0) text += "  " + duration_text(known.seconds_left) + " left";
    return text;
  }

  void draw(int64_t step, const Scalars& scalars, double now) {
    // Leave the last column empty: some terminals wrap after writing to it.
    bar_ = progress_line(progress(step, scalars, now), terminal_width(stream_) - 1);
    drawn_at_ = now;
    drawn_ = true;
    terminal_.print("\r" + bar_ + "\033[K");
  }

  // Prints a line, above the progress bar if there is one.
  void line(const std::string& text) {
    if (!drawn_) return terminal_.print(text + "\n");
    drawn_ = !bar_.empty();
    terminal_.print("\r\033[K" + text + "\n" + bar_);
  }

  std::string painted(const std::string& text, const char* color) const {
    return color_ ? color + text + "\033[0m" : text;
  }

  std::FILE* stream_;
  int64_t every_;
  LogClock clock_;
  bool redraws_, color_;
  Terminal terminal_;
  int64_t total_ = 0, steps_per_epoch_ = 0;
  int64_t evaluated_ = -1;              // the last step that was evaluated
  int64_t first_step_ = -1, next_ = 0;  // the first step seen (-1: none), and the next one to print
  double began_ = -1, first_at_ = 0, drawn_at_ = 0;
  bool drawn_ = false;  // the cursor is behind the bar
  std::string bar_;
};

}  // namespace

std::shared_ptr<Logger> console_logger(const ConsoleOptions& options, LogClock clock) {
  if (options.every < 1)
    throw_error("console_logger: every is {}; give a number of steps of at least 1, such as 100", options.every);
  return std::make_shared<ConsoleLogger>(options, std::move(clock));
}

}  // namespace detail

std::shared_ptr<Logger> console_logger(const ConsoleOptions& options) {
  return detail::console_logger(options, detail::LogClock::real());
}

}  // namespace lockstep
