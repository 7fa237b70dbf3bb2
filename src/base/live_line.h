// LiveLine: the last line of a terminal, which is drawn again in place while lines of text are printed above it. It
// shows a progress bar, or what the program is doing. After a drawing the cursor is at the beginning of the line, so
// that an echoed ^C does not wrap and a resized terminal leaves no copies. Safe from any thread.
#pragma once

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/terminal_style.h"

namespace lockstep {

class LiveLine {
 public:
  struct Moment {
    size_t columns = 80;        // most columns of the line
    double seconds = 0;         // since show()
    std::string activity = {};  // what the program is doing besides, with a spinner; empty: nothing
  };
  using Render = std::function<std::string(const Moment&)>;

  explicit LiveLine(std::FILE* stream);
  // Ends the line, if there is one.
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  // That of standard error. Messages of print_stderr() are printed above it.
  static LiveLine& of_stderr();

  const TerminalStyle& style() const { return style_; }

  // Draws a line, and shows it from now on. Does nothing unless the stream is a terminal that redraws.
  void show(Render render);
  // Draws the line again if its text has changed: with the time, the width of the terminal or the activity. An activity
  // has a line of its own if no other is shown.
  void refresh();
  // Removes the line.
  void clear();
  // Keeps what was drawn last as an ordinary line.
  void finish();

  // Prints text above the line. The text ends with a newline. Returns 0, or the errno of a failed write.
  int print(std::string_view text);

 private:
  friend class Activity;
  using Clock = std::chrono::steady_clock;

  std::string rendered() const;
  int write(std::string_view text) const;

  std::FILE* stream_;
  TerminalStyle style_;
  mutable std::mutex mutex_;
  Render render_;
  Clock::time_point shown_at_ = {};
  std::vector<std::pair<std::string, Clock::time_point>> activities_;  // with their beginning; the last one counts
  std::string drawn_;                                                  // empty: no line
};

// Refreshes the line of standard error every tenth of a second while it exists. Starts no thread if that is not a
// terminal.
class LiveLineUpdates {
 public:
  LiveLineUpdates();
  ~LiveLineUpdates();
  LiveLineUpdates(const LiveLineUpdates&) = delete;
  LiveLineUpdates& operator=(const LiveLineUpdates&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::thread thread_;
};

// What the program is doing while the object exists, such as "reading mnist": shown in the line of standard error. An
// activity ends before those that were begun earlier.
class Activity {
 public:
  explicit Activity(std::string text);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  double seconds() const;

 private:
  LiveLine::Clock::time_point began_;
};

}  // namespace lockstep
