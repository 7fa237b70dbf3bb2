#include "base/live_line.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <utility>

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kRefreshInterval(100);
// Draws to the end of the screen, because a narrower terminal may have broken the line into several.
constexpr std::string_view kErase = "\033[J";

double seconds_between(std::chrono::steady_clock::time_point a, std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

// "⠋ reading mnist": the first character turns with the time.
std::string spinner_text(const std::string& text, double seconds, bool unicode) {
  constexpr std::array<const char*, 10> kDots = {"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"};
  constexpr std::array<const char*, 4> kStrokes = {"|", "/", "-", "\\"};
  const auto frame = static_cast<size_t>(seconds * 10);
  return fmt::format("{} {}", unicode ? kDots[frame % kDots.size()] : kStrokes[frame % kStrokes.size()], text);
}

}  // namespace

LiveLine::LiveLine(std::FILE* stream) : stream_(stream), style_(terminal_style(::fileno(stream))) {}

LiveLine::~LiveLine() { finish(); }

LiveLine& LiveLine::of_stderr() {
  // Never destroyed: messages may be printed while the program exits.
  static LiveLine& line = *new LiveLine(stderr);
  return line;
}

int LiveLine::write(std::string_view text) const {
  // stderr is not buffered: this is one write, which the lines of other processes do not divide.
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stream_) == text.size() && std::fflush(stream_) == 0) return 0;
  return errno != 0 ? errno : EIO;
}

std::string LiveLine::rendered() const {
  const Clock::time_point now = Clock::now();
  Moment moment{.columns = terminal_columns(::fileno(stream_)) - 1};  // some terminals wrap after the last column
  if (!activities_.empty()) {
    const auto& [text, began] = activities_.back();
    const double seconds = seconds_between(began, now);
    moment.activity = spinner_text(text, seconds, style_.unicode);
    if (seconds >= 2 && !render_) moment.activity += fmt::format("  {:.0f} s", seconds);
  }
  if (!render_) return fit_columns(moment.activity, moment.columns);
  moment.seconds = shown_at_ == Clock::time_point{} ? 0 : seconds_between(shown_at_, now);
  return fit_columns(render_(moment), moment.columns);
}

void LiveLine::show(Render render) {
  if (!style_.redraws) return;
  const std::lock_guard lock(mutex_);
  render_ = std::move(render);
  shown_at_ = {};
  drawn_ = rendered();
  shown_at_ = Clock::now();
  write(fmt::format("\r{}{}\r", drawn_, kErase));
}

void LiveLine::refresh() {
  if (!style_.redraws) return;
  const std::lock_guard lock(mutex_);
  std::string text = rendered();
  if (text == drawn_) return;
  drawn_ = std::move(text);
  write(fmt::format("\r{}{}\r", drawn_, kErase));
}

void LiveLine::clear() {
  const std::lock_guard lock(mutex_);
  render_ = nullptr;
  if (!drawn_.empty()) write(fmt::format("\r{}", kErase));
  drawn_.clear();
}

void LiveLine::finish() {
  const std::lock_guard lock(mutex_);
  render_ = nullptr;
  if (!drawn_.empty()) write("\n");
  drawn_.clear();
}

int LiveLine::print(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (drawn_.empty()) return write(text);
  return write(fmt::format("\r{}{}{}{}", kErase, text, drawn_, '\r'));
}

struct LiveLineUpdates::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
};

LiveLineUpdates::LiveLineUpdates() {
  if (!LiveLine::of_stderr().style().redraws) return;
  state_ = std::make_unique<State>();
  thread_ = std::thread([state = state_.get()] {
    std::unique_lock lock(state->mutex);
    while (!state->changed.wait_for(lock, kRefreshInterval, [&] { return state->stop; })) {
      lock.unlock();
      LiveLine::of_stderr().refresh();
      lock.lock();
    }
  });
}

LiveLineUpdates::~LiveLineUpdates() {
  if (!state_) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  thread_.join();
}

Activity::Activity(std::string text) : began_(LiveLine::Clock::now()) {
  LiveLine& line = LiveLine::of_stderr();
  const std::lock_guard lock(line.mutex_);
  line.activities_.emplace_back(std::move(text), began_);
}

Activity::~Activity() {
  LiveLine& line = LiveLine::of_stderr();
  {
    const std::lock_guard lock(line.mutex_);
    line.activities_.pop_back();
  }
  // Without a thread that refreshes it, an activity has no line of its own.
  if (line.style().redraws) line.refresh();
}

double Activity::seconds() const { return seconds_between(began_, LiveLine::Clock::now()); }

}  // namespace lockstep
