#include <map>
#include <string_view>

#include <utility>

#include "train/logging.h"

namespace lockstep {
namespace detail {
namespace {

class CompactLogger final : public Logger {
 public:
  CompactLogger(std::FILE* stream, LogClock clock) : clock_(std::move(clock)), terminal_(stream) {}

  void begin(const RunInfo& info) override {
    total_ = info.total_steps;
    began_ = clock_.steady_seconds();
  }
  void step(int64_t, const Scalars&) override {}
  void evaluation(int64_t step, const Scalars& scalars) override { terminal_.print(text(step, scalars) + "\n"); }
  void message(int64_t, const std::string& text, bool alarm) override {
    if (alarm) terminal_.print("alarm: " + text + "\n");
  }
  void end(int64_t step, const Scalars& metrics) override {
    std::string line = (step < total_ ? "ended  " : "done  ") + text(step, metrics);
    if (began_ >= 0) line += "  " + duration_text(clock_.steady_seconds() - began_);
    terminal_.print(line + "\n");
  }

 private:
  // The first two metrics of each evaluated set; of training if none was evaluated.
  std::string text(int64_t step, const Scalars& scalars) const {
    constexpr int kShown = 2;
    std::map<std::string_view, int> shown;
    std::string line = step_text(step, total_), evaluated;
    for (const auto& [name, value] : scalars)
      if (const std::string_view set = set_of(name); !set.empty() && shown[set]++ < kShown)
        evaluated += "  " + scalar_text(name, value);
    if (!evaluated.empty()) return line + evaluated;
    for (const auto& [name, value] : task_scalars(scalars))
      if (shown[""]++ < kShown) line += "  " + scalar_text(name, value);
    return line;
  }

  LogClock clock_;
  Terminal terminal_;
  int64_t total_ = 0;
  double began_ = -1;
};

}  // namespace

std::shared_ptr<Logger> compact_logger(std::FILE* stream, LogClock clock) {
  return std::make_shared<CompactLogger>(stream, std::move(clock));
}

}  // namespace detail

std::shared_ptr<Logger> compact_logger(std::FILE* stream) {
  return detail::compact_logger(stream, detail::LogClock::real());
}

}  // namespace lockstep
