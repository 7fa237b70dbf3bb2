// Locks on files that say which process holds them. A lock ends with its process, however that ends, so "is it alive"
// never rests on a process number alone: numbers are used again. (These are POSIX record locks: children do not inherit
// them, and closing any descriptor of the file drops them, so the holder must open the file once only.) Used by one
// thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "jobs/descriptor.h"

namespace lockstep {

// A lock that this process holds.
class FileLock {
 public:
  // Makes the file when there is none. None when another process holds the lock. Throws IoError when the file cannot
  // be opened.
  static std::optional<FileLock> take(const std::string& path);

 private:
  explicit FileLock(Descriptor file) : file_(std::move(file)) {}
  Descriptor file_;
};

// The process that holds a lock.
struct LockHolder {
  pid_t pid = 0;
  Descriptor handle;  // readable when the process has ended; stays its own when the number is used again

  void send(int signal) const;
};

// None when nobody holds it, or there is no such file. REQUIRES: this process does not hold it.
std::optional<LockHolder> lock_holder(const std::string& path);

// A descriptor of a process, which it keeps when the number is used again; empty when there is no such process.
Descriptor open_process(pid_t pid);

}  // namespace lockstep
