// File locks that reveal which process holds them. A lock is released when its process ends, however it ends. So a lock
// is a reliable sign of life, unlike a pid, which can be reused. Used by one thread.
//
// These are POSIX record locks: children do not inherit them, and closing any descriptor of the file releases them. The
// holder must therefore open the file only once.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/os/descriptor.h"

namespace lockstep {

// A lock that this process holds.
class FileLock {
 public:
  // Creates the file if necessary. Returns nullopt if another process holds the lock. Does not block. Throws IoError if
  // the file cannot be opened.
  static std::optional<FileLock> try_acquire(const std::string& path);

 private:
  explicit FileLock(Descriptor file) : file_(std::move(file)) {}
  Descriptor file_;
};

// The process that holds a lock.
struct LockHolder {
  pid_t pid = 0;
  Descriptor handle;  // a pidfd: readable once the process has ended; may be empty

  void send(int signal) const;
};

// The process that holds the lock; nullopt if it is free or the file does not exist. REQUIRES: this process does not
// hold it.
std::optional<LockHolder> lock_holder(const std::string& path);

// A pidfd, which refers to this process even if the pid is reused; empty if the process does not exist.
Descriptor open_process(pid_t pid);

}  // namespace lockstep
