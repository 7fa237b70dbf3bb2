// The working directory of a test: a new folder. Not thread-safe.
#pragma once

#include <filesystem>
#include <string>

#include "base/file.h"

namespace lockstep {

// While the object exists, the working directory is a new folder, which the destructor removes.
class InNewFolder {
 public:
  InNewFolder() : before_(std::filesystem::current_path()) { std::filesystem::current_path(dir_.path()); }
  ~InNewFolder() { std::filesystem::current_path(before_); }
  InNewFolder(const InNewFolder&) = delete;
  InNewFolder& operator=(const InNewFolder&) = delete;

  const std::string& path() const { return dir_.path(); }

 private:
  TempDir dir_;
  std::filesystem::path before_;
};

}  // namespace lockstep
