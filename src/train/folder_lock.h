// FolderLock: one run writes to a folder of checkpoints at a time. Held through a lock of the file `.lock` in it, which
// says who holds it; the system gives it back when the process ends, however it does. Used by one thread.
#pragma once

#include <chrono>
#include <string>

namespace lockstep {

class FolderLock {
 public:
  // Makes the folder when there is none. A run that was just ended gets `patience` to be gone. Throws Error naming the
  // process that writes there, and IoError when the file cannot be opened. On a file system without locks there is
  // none; a run on another machine, which may be gone, is told of on stderr.
  explicit FolderLock(const std::string& dir, std::chrono::milliseconds patience);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace lockstep
