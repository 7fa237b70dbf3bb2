// Splits the output of a child process into lines as bytes arrive, with bounded memory. Used by one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

// A line without its newline. A line longer than kMaxLineBytes comes in several pieces: `begins` is true for the
// first, `ends` for the last.
struct OutputLine {
  std::string_view text;
  bool begins = true, ends = true;
};
using LineSink = std::function<void(const OutputLine&)>;

inline constexpr size_t kMaxLineBytes = 64 * 1024;

// Splits the bytes of a pipe.
class LineSplitter {
 public:
  // Passes all complete lines to the sink.
  void add(std::string_view bytes, const LineSink& sink);
  // Passes the unfinished last line to the sink, if any. Call it at the end of the stream.
  void finish(const LineSink& sink);

 private:
  std::string rest_;        // the unfinished line
  bool continued_ = false;  // a piece of this line was passed already
};

// Splits the bytes of a terminal. A carriage return lets the program redraw the current line until a newline ends it;
// only the last drawing counts.
class TerminalLines {
 public:
  void add(std::string_view bytes, const LineSink& sink);
  void finish(const LineSink& sink);
  // The current content of the unfinished line.
  std::string_view unfinished() const;

 private:
  std::string rest_;
};

// The text without ANSI escape sequences (colors, cursor movement).
std::string without_escapes(std::string_view text);

}  // namespace lockstep
