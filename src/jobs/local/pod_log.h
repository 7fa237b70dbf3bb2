// PodLog: a log file of bounded size that never fails its writer. `log` has the newest lines and `log.1` older ones.
// When `log` is full it replaces `log.1`, and `log.dropped` counts the bytes lost. `log.times` and `log.1.times` hold the
// times of the output: a line `<seconds since 1970> <offset in the file>` for every second with output. Lines that cannot be written (the
// disk is full) are counted, and the log gets a note when there is room again. Used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"

namespace lockstep {

inline constexpr int64_t kDefaultLogLimit = 256 << 20;
inline constexpr int64_t kMinLogLimit = 4096;

class PodLog {
 public:
  // Seconds since 1970.
  using Clock = std::function<int64_t()>;

  // Appends to existing files. `limit` is the size of each of the two files in bytes.
  PodLog(FileSystem& files, std::string path, int64_t limit, Clock clock = {});

  // Appends complete lines, or pieces of a long line. Never throws.
  void write(std::string_view text);

  // Writes the note about lines missing at the end, if there is room for it. May be called again. Never throws.
  void finish();

 private:
  void rotate();
  void append(std::string_view text);
  void note_time();

  FileSystem& files_;
  std::string path_;
  int64_t limit_, size_ = 0;
  int64_t missing_lines_ = 0, missing_bytes_ = 0;
  bool inside_line_ = false;  // the file does not end with a newline
  std::string reason_;        // why lines are missing
  Clock clock_;
  int64_t noted_time_ = 0;  // the last one in the file of times
};

// The offset in the log file at `path` of the first output at or after a time; nullopt if there is none.
std::optional<int64_t> offset_since(const std::string& path, int64_t time);

// A note about the bytes dropped before the oldest line; empty if none were.
std::string dropped_note(const std::string& path);

}  // namespace lockstep
