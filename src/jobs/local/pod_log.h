// PodLog: a log file of bounded size that never fails its writer. `log` has the newest lines and `log.1` older ones.
// When `log` is full it replaces `log.1`, and `log.dropped` counts the bytes lost. Lines that cannot be written (the
// disk is full) are counted, and the log gets a note when there is room again. Used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"

namespace lockstep {

inline constexpr int64_t kDefaultLogLimit = 256 << 20;
inline constexpr int64_t kMinLogLimit = 4096;

class PodLog {
 public:
  // Appends to existing files. `limit` is the size of each of the two files in bytes.
  PodLog(FileSystem& files, std::string path, int64_t limit);

  // Appends complete lines, or pieces of a long line. Never throws.
  void write(std::string_view text);

  // Writes the note about lines missing at the end, if there is room for it. May be called again. Never throws.
  void finish();

 private:
  void rotate();
  void append(std::string_view text);

  FileSystem& files_;
  std::string path_;
  int64_t limit_, size_ = 0;
  int64_t missing_lines_ = 0, missing_bytes_ = 0;
  bool inside_line_ = false;  // the file does not end with a newline
  std::string reason_;        // why lines are missing
};

// A note about the bytes dropped before the oldest line; empty if none were.
std::string dropped_note(const std::string& path);

}  // namespace lockstep
