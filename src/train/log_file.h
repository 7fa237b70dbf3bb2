// A file of a run that grows by lines or records: what is added waits in memory for at most a second. Used by one
// thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/file.h"

namespace lockstep::detail {

// What time it is, for loggers; tests turn the hands.
struct LogClock {
  std::function<double()> unix_seconds;    // since 1970, for people and files
  std::function<double()> steady_seconds;  // since any moment, for intervals
  static LogClock real();
};

class LogFile {
 public:
  // Makes the folder and the file. Throws IoError when it cannot be written.
  LogFile(std::string path, FileSystem& files, LogClock clock);
  // Writes what waits.
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  const std::string& path() const { return path_; }
  double unix_seconds() const { return clock_.unix_seconds(); }

  // Where the next line or record goes; call added() after each. What is put here before open() waits for it.
  std::string& buffer() { return buffer_; }
  // Writes when a second has passed since the last time, or when much waits.
  void added();
  // Writes what waits, now. Does nothing before open().
  void flush();
  // From here on what is added is written. What an earlier run left is moved to `<path>.previous` first, unless it is
  // edited by `resume` and gone on with.
  using Edit = std::function<std::string(const std::string& old)>;
  void open(const Edit& resume = {});
  // Replaces what the file holds, atomically, after writing what waits.
  void edit(const Edit& edit);

  // No more is written: a failure was told on stderr.
  bool broken() const { return broken_; }

 private:
  // Runs what may throw IoError, which ends the writing.
  void attempt(const std::function<void()>& action);
  void rewrite(const Edit& edit);

  std::string path_, buffer_;
  FileSystem& files_;
  LogClock clock_;
  double flushed_at_;
  bool open_ = false, broken_ = false;
};

}  // namespace lockstep::detail
