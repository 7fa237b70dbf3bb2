// LogReader: what a PodLog holds, from its beginning or its last lines on, also while it is written and turned over.
// Used by one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "jobs/descriptor.h"

namespace lockstep {

class LogReader {
 public:
  // `path` is that of PodLog; there need not be a file yet. With `tail` only the last lines are read.
  LogReader(std::string path, std::optional<int64_t> tail);

  // Gives all that is there and was not given before to the sink, in pieces; false when the sink wants no more. Throws
  // IoError.
  bool read(const std::function<bool(std::string_view)>& sink);

 private:
  bool drain(const std::function<bool(std::string_view)>& sink);
  bool open_next(const std::function<bool(std::string_view)>& sink, bool& stopped);
  void find_tail();

  std::string path_;
  std::optional<int64_t> tail_;
  Descriptor file_;     // the one being read
  ino_t inode_ = 0;     // of it
  int64_t offset_ = 0;  // in it
};

}  // namespace lockstep
