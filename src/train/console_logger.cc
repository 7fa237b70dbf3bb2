#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/names.h"
#include "train/logging.h"
#include "train/progress_line.h"

namespace lockstep {
namespace detail {
namespace {

constexpr double kRedrawSeconds = 0.1;

class ConsoleLogger final : public Logger {
 public:
  ConsoleLogger(const ConsoleOptions& options, LogClock clock)
      : every_(options.every),
        title_(options.title),
        clock_(std::move(clock)),
        terminal_(options.stream),
        style_(terminal_.line().style()) {
    style_.color = style_.color && options.color;
  }

  // If the run was aborted, its progress stays on the terminal.
  ~ConsoleLogger() override { terminal_.line().finish(); }

  void begin(const RunInfo& info) override {
    total_ = info.total_steps;
    steps_per_epoch_ = info.steps_per_epoch;
    began_ = clock_.steady_seconds();
    first_step_ = -1;
    if (!title_) return;
    std::string text = info.title;
    if (total_ > 0) text += (text.empty() ? "" : ": ") + counted(total_, "step");
    if (info.first_step > 0) text += fmt::format("{}resumed after step {}", text.empty() ? "" : ", ", info.first_step);
    if (!text.empty()) line(text);
  }

  void step(int64_t step, const Scalars& scalars) override {
    if (style_.redraws) {
      if (!scalars.empty() && scalars[0].first == "loss") losses_.add(scalars[0].second);
      const double now = clock_.steady_seconds();
      if (first_step_ >= 0 && now - drawn_at_ < kRedrawSeconds && step != total_) return;
      drawn_at_ = now;
      draw(progress(step, scalars, now));
    } else {
      if (first_step_ >= 0 && step < next_) return;
      next_ = (step / every_ + 1) * every_;
      line(step_line(progress(step, scalars, clock_.steady_seconds())));
    }
  }

  void evaluation(int64_t step, const Scalars& scalars) override {
    std::string text = step_text(step, total_);
    for (const auto& [name, value] : scalars) text += "  " + scalar_text(name, value);
    evaluated_ = step;
    line(painted(text, Paint::bold, style_.color));
  }

  void message(int64_t, const std::string& text, bool alarm) override {
    line(alarm ? painted("alarm:", Paint::bold_red, style_.color) + " " + painted(text, Paint::yellow, style_.color)
               : text);
  }

  void end(int64_t step, const Scalars& metrics) override {
    terminal_.line().clear();  // the last line replaces it
    std::string text = (step < total_ ? "ended  " : "done  ") + step_text(step, total_);
    for (const auto& [name, value] : task_scalars(metrics)) text += "  " + scalar_text(name, value);
    if (const auto* rate = find_rate(metrics)) text += "  " + scalar_text(rate->first, rate->second);
    // Not those that evaluation() has printed already.
    const bool evaluated = step == evaluated_ || (step < total_ && evaluated_ >= 0);
    for (const auto& [name, value] : metrics)
      if (!set_of(name).empty() && !evaluated) text += "  " + scalar_text(name, value);
    if (began_ >= 0) text += "  " + duration_text(clock_.steady_seconds() - began_);
    line(painted(text, Paint::bold, style_.color));
  }

 private:
  Progress progress(int64_t step, const Scalars& scalars, double now) {
    if (first_step_ < 0) first_step_ = step, first_at_ = now;
    const auto shown = task_scalars(scalars);
    Progress out{.step = step,
                 .total = total_,
                 .steps_per_epoch = steps_per_epoch_,
                 .metrics = Scalars(shown.begin(), shown.end()),
                 .losses = losses_.means()};
    // Measured from the end of the first step, which compiles. Includes evaluations, which the remaining time does too.
    const auto steps = static_cast<double>(step - first_step_);
    if (steps > 0 && now > first_at_) {
      out.rate = steps / (now - first_at_), out.rate_unit = "steps";
      if (total_ > 0) out.seconds_left = static_cast<double>(std::max<int64_t>(total_ - step, 0)) / out.rate;
    }
    // The rate is 0 until the first step that does not compile.
    if (const auto* rate = find_rate(scalars); rate != nullptr && rate->second > 0)
      out.rate = rate->second, out.rate_unit = rate->first.substr(0, rate->first.rfind("_per_second"));
    return out;
  }

  std::string step_line(const Progress& known) const {
    std::string text = step_text(known.step, total_);
    for (const auto& [name, value] : known.metrics) text += "  " + scalar_text(name, value);
    if (known.rate > 0)
      text += fmt::format(fmt::runtime(known.rate_unit == "steps" ? "  {:.3g} {}/s" : "  {:.0f} {}/s"), known.rate,
                          known.rate_unit);
    if (steps_per_epoch_ > 0)
      text += fmt::format("  epoch {:.1f}", static_cast<double>(known.step) / static_cast<double>(steps_per_epoch_));
    if (known.seconds_left >= 0) text += "  " + duration_text(known.seconds_left) + " left";
    return text;
  }

  // Draws the bar. The line draws it again by itself: the remaining time falls while a step takes long.
  void draw(Progress known) {
    terminal_.line().show([known = std::move(known), style = style_](const LiveLine::Moment& moment) {
      Progress now = known;
      now.activity = moment.activity;
      if (now.seconds_left >= 0) now.seconds_left = std::max(now.seconds_left - moment.seconds, 0.0);
      return progress_line(now, moment.columns, style);
    });
  }

  void line(const std::string& text) { terminal_.print(text + "\n"); }

  int64_t every_;
  bool title_;
  LogClock clock_;
  Terminal terminal_;
  TerminalStyle style_;
  LossHistory losses_;
  int64_t total_ = 0, steps_per_epoch_ = 0;
  int64_t evaluated_ = -1;              // the last step that was evaluated
  int64_t first_step_ = -1, next_ = 0;  // the first step seen (-1: none), and the next one to print
  double began_ = -1, first_at_ = 0, drawn_at_ = 0;
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
