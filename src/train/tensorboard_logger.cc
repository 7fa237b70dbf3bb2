#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "base/os/host_name.h"
#include "train/logging.h"
#include "train/tfevents.h"

namespace lockstep {
namespace detail {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

// TensorBoard reads the files of a folder in the order of their names, which start with a time stamp in seconds. The
// new name must sort after all existing ones, even within the same second.
std::string event_path(const std::string& dir, FileSystem& files, double now) {
  files.make_dirs(dir);
  auto second = static_cast<int64_t>(now);
  for (const std::string& name : files.list(dir)) {
    int64_t other = 0;
    if (!name.starts_with(kPrefix)) continue;
    const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), other);
    if (error == std::errc()) second = std::max(second, other + 1);
  }
  return fmt::format("{}/{}{:010}.{}.{}.0", dir, kPrefix, second, own_host_name(), ::getpid());
}

std::string markdown_table(const RunInfo& info) {
  const auto cell = [](const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '|') out += '\\';
      out += c == '\n' ? ' ' : c;
    }
    return out;
  };
  std::string out = info.title.empty() ? "" : cell(info.title) + "\n\n";
  out += "| setting | value |\n| --- | --- |\n";
  for (const auto& [key, value] : info.config) out += fmt::format("| {} | {} |\n", cell(key), cell(value));
  return out;
}

class TensorboardLogger final : public Logger {
 public:
  TensorboardLogger(const std::string& dir, FileSystem& files, LogClock clock)
      : file_(event_path(dir, files, clock.unix_seconds()), files, clock) {
    file_.open();
    record(version_event(file_.unix_seconds()));
    file_.flush();
  }

  void begin(const RunInfo& info) override {
    const double now = file_.unix_seconds();
    const int64_t step = info.first_step;
    record(session_start_event(now, step + 1));
    if (!info.config.empty()) {
      record(experiment_event(now, step, info.config, {"test/accuracy", "test/loss", "train/accuracy", "train/loss"}));
      record(run_start_event(now, step, info.config));
      record(text_event(now, step, "config", markdown_table(info)));
      has_run_start_ = true;
    }
    file_.flush();
  }

  void step(int64_t step, const Scalars& scalars) override { add(step, scalars); }

  void evaluation(int64_t step, const Scalars& scalars) override {
    add(step, scalars);
    file_.flush();
  }

  void message(int64_t step, const std::string& text, bool alarm) override {
    if (!alarm) return;
    record(text_event(file_.unix_seconds(), step, "alarms", text));
    file_.flush();
  }

  void end(int64_t step, const Scalars&) override {
    if (has_run_start_) record(run_end_event(file_.unix_seconds(), step));
    file_.flush();
  }

  void log_image(const std::string& tag, int64_t step, const LogImage& image) override {
    add_record(image_event(file_.unix_seconds(), step, tag, image));
  }
  void log_histogram(const std::string& tag, int64_t step, const Histogram& histogram) override {
    add_record(histogram_event(file_.unix_seconds(), step, tag, histogram));
  }
  void log_text(const std::string& tag, int64_t step, const std::string& text) override {
    add_record(text_event(file_.unix_seconds(), step, tag, text));
  }
  bool shows_media() const override { return true; }

 private:
  void add_record(const std::string& event) {
    record(event);
    file_.added();
  }
  void record(const std::string& event) { append_record(file_.buffer(), event); }

  void add(int64_t step, const Scalars& scalars) {
    event_.begin(file_.unix_seconds(), step);
    for (const auto& [name, value] : scalars) event_.add(tag(name), static_cast<float>(value));
    event_.end(file_.buffer());
    file_.added();
  }

  const std::string& tag(const std::string& name) {
    std::string& out = tags_[name];
    if (const std::string_view set = set_of(name); out.empty())
      out =
          set.empty() ? "train/" + name : fmt::format("{}/{}", set.substr(0, set.size() - 1), name.substr(set.size()));
    return out;
  }

  LogFile file_;
  ScalarsEvent event_;
  std::map<std::string, std::string> tags_;
  bool has_run_start_ = false;
};

}  // namespace

std::shared_ptr<Logger> tensorboard_logger(const std::string& dir, FileSystem& files, LogClock clock) {
  return std::make_shared<TensorboardLogger>(dir, files, std::move(clock));
}

}  // namespace detail

std::shared_ptr<Logger> tensorboard_logger(const std::string& dir, FileSystem* files) {
  return detail::tensorboard_logger(dir, files != nullptr ? *files : FileSystem::real(), detail::LogClock::real());
}

}  // namespace lockstep
