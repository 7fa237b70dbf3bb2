// Lines of what a child prints, found in the bytes as they come, with bounded memory. Used by one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

// A line or, where it is longer than kLongestLine, one piece of it. Without the newline.
struct Line {
  std::string_view text;
  bool begins = true, ends = true;
};
using LineSink = std::function<void(const Line&)>;

inline constexpr size_t kLongestLine = 64 * 1024;

// Of a pipe.
class LineSplitter {
 public:
  // Gives all lines that are whole now to the sink.
  void add(std::string_view bytes, const LineSink& sink);
  // The stream is over: gives what is left, if anything is.
  void finish(const LineSink& sink);

 private:
  std::string rest_;        // the beginning of a line
  bool continued_ = false;  // a piece of this line was given
};

// Of a terminal, where a line is drawn over (after a carriage return) until a newline makes it stay.
class TerminalLines {
 public:
  void add(std::string_view bytes, const LineSink& sink);
  void finish(const LineSink& sink);
  // What stands on the line that has not ended, as it was drawn last.
  std::string_view unfinished() const;

 private:
  std::string rest_;
};

// The text without the sequences that colour it and move the cursor.
std::string without_escapes(std::string_view text);

}  // namespace lockstep
