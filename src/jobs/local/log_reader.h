// LogReader: reads a PodLog from its beginning or from its last lines, also while it is written and rotated. Used by
// one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/os/descriptor.h"

namespace lockstep {

class LogReader {
 public:
  // `path` is that of the PodLog; the file need not exist yet. With `tail`, starts that many lines before the end. With
  // `since`, in seconds since 1970, starts at the first output at or after that time.
  LogReader(std::string path, std::optional<int64_t> tail, std::optional<int64_t> since = {});

  // Passes everything new since the last call to the sink, in pieces. Stops and returns false if the sink returns
  // false. Throws IoError.
  bool read(const std::function<bool(std::string_view)>& sink);

 private:
  bool drain(const std::function<bool(std::string_view)>& sink);
  bool open_next(const std::function<bool(std::string_view)>& sink, bool& stopped);
  void find_start();
  void find_since();
  void find_tail();

  std::string path_;
  std::optional<int64_t> tail_, since_;
  // The file being read, its inode and the position in it.
  Descriptor file_;
  ino_t inode_ = 0;
  int64_t offset_ = 0;
};

}  // namespace lockstep
