#include "jobs/local/lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>

#include <cerrno>

#include "base/file.h"

namespace lockstep {
namespace {

struct flock whole_file() {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// The pid of the process that holds the lock; 0 if it is free.
pid_t holder_of(const Descriptor& file) {
  struct flock lock = whole_file();
  if (::fcntl(file.get(), F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return 0;
  return lock.l_pid;
}

}  // namespace

std::optional<FileLock> FileLock::try_acquire(const std::string& path) {
  Descriptor file = open_lock_file(path, 0600);
  if (!file) throw_io_error("open", path, errno);
  struct flock lock = whole_file();
  while (::fcntl(file.get(), F_SETLK, &lock) != 0) {
    if (errno == EACCES || errno == EAGAIN) return std::nullopt;
    if (errno != EINTR) throw_io_error("lock", path, errno);
  }
  return FileLock(std::move(file));
}

Descriptor open_process(pid_t pid) { return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

void LockHolder::send(int signal) const {
  if (handle)
    ::syscall(SYS_pidfd_send_signal, handle.get(), signal, nullptr, 0);
  else
    ::kill(pid, signal);  // no pidfd (old kernel, or out of descriptors): it held the lock a moment ago
}

std::optional<LockHolder> lock_holder(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!file) return std::nullopt;
  for (;;) {
    const pid_t pid = holder_of(file);
    if (pid == 0) return std::nullopt;
    Descriptor handle = open_process(pid);
    // If the same pid still holds the lock, the pidfd refers to the holder and not to a later process with its pid.
    if (holder_of(file) == pid) return LockHolder{pid, std::move(handle)};
  }
}

}  // namespace lockstep
