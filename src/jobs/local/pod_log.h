// PodLog: a log file that is bounded and never in the way. `log` holds the newest lines and `log.1` those before; when
// both are full the oldest are dropped, and `log.dropped` counts them. What cannot be written (the disk is full) is
// counted and said in the log when there is room again. Used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"

namespace lockstep {

inline constexpr int64_t kLogLimit = 256 << 20;
inline constexpr int64_t kLeastLogLimit = 4096;

class PodLog {
 public:
  // Goes on where the files that are there end. `limit` is in bytes, of each of the two.
  PodLog(FileSystem& files, std::string path, int64_t limit);

  // Whole lines, or pieces of a long one. Never throws.
  void write(std::string_view text);

  // Nothing more will come: says what is missing at the end, where there is room for it. May be called again. Never
  // throws.
  void finish();

 private:
  void rotate();
  void append(std::string_view text);

  FileSystem& files_;
  std::string path_;
  int64_t limit_, size_ = 0;
  int64_t missing_lines_ = 0, missing_bytes_ = 0;
  bool inside_line_ = false;  // what was written last does not end with a newline
  std::string reason_;        // why lines are missing
};

// The line that stands for what was dropped before the oldest file; empty when nothing was.
std::string dropped_note(const std::string& path);

}  // namespace lockstep
