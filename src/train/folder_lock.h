// FolderLock: ensures that only one run writes to a checkpoint folder at a time. Locks the file `.lock` in the folder
// and writes the holder's pid and host to it. The system releases the lock when the process ends. Not thread-safe.
#pragma once

#include <chrono>
#include <string>

#include "base/os/descriptor.h"

namespace lockstep {

class FolderLock {
 public:
  // Creates the folder if it does not exist. Waits up to `patience` for a run that is just ending. Throws Error naming
  // the process that holds the lock, IoError when the file cannot be opened. Does nothing on a file system without
  // locks. A holder on another host, which may be dead, only causes a warning on stderr.
  explicit FolderLock(const std::string& dir, std::chrono::milliseconds patience);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  Descriptor file_;
};

// Whether a process of this host, or of another one if the file system shares locks, holds the lock of a folder. False
// if that cannot be determined.
bool is_folder_locked(const std::string& dir);

}  // namespace lockstep
