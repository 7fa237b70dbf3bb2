// LogFile: a log file that lines or records are appended to. They are buffered in memory for at most a second. Not
// thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/file.h"

namespace lockstep::detail {

// The clock of loggers; tests replace it.
struct LogClock {
  std::function<double()> unix_seconds;    // since 1970, for time stamps
  std::function<double()> steady_seconds;  // monotonic, for intervals
  static LogClock real();
};

class LogFile {
 public:
  // Creates the folder and the file. Throws IoError when the file is not writable.
  LogFile(std::string path, FileSystem& files, LogClock clock);
  // Flushes.
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  const std::string& path() const { return path_; }
  double unix_seconds() const { return clock_.unix_seconds(); }

  // The buffer to append the next line or record to; call added() after each. It is not written before open().
  std::string& buffer() { return buffer_; }
  // Whether the last flush was at least a second ago.
  bool due() const;
  // Flushes if the last flush was at least a second ago, or if the buffer is large.
  void added();
  // Writes the buffer to the file. Does nothing before open().
  void flush();
  // Enables writing. The file of an earlier run is renamed to `<path>.previous`, or, if `resume` is given, replaced by
  // resume(old contents) and appended to.
  using Edit = std::function<std::string(const std::string& old)>;
  void open(const Edit& resume = {});
  // Flushes, then replaces the contents of the file atomically by edit(old contents).
  void edit(const Edit& edit);

  // Whether a write failed. Then a warning was printed and nothing is written any more.
  bool broken() const { return broken_; }

 private:
  // Runs an action that may throw IoError; an error sets broken_.
  void attempt(const std::function<void()>& action);
  void rewrite(const Edit& edit);

  std::string path_, buffer_;
  FileSystem& files_;
  LogClock clock_;
  double flushed_at_;
  bool open_ = false, broken_ = false;
};

}  // namespace lockstep::detail
