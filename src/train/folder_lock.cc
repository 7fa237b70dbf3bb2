#include "train/folder_lock.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/os/host_name.h"
#include "base/print_stderr.h"
#include "base/printable.h"

namespace lockstep {
namespace {

enum class Locking { done, held, impossible };

Locking lock_now(int file, const std::string& path) {
  while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Locking::held;
    const bool impossible = errno == ENOLCK || errno == ENOTSUP || errno == EOPNOTSUPP || errno == ENOSYS ||
                            errno == EBADF;  // NFS requires write access
    if (impossible) return Locking::impossible;
    if (errno != EINTR) throw_io_error("lock", path, errno);
  }
  return Locking::done;
}

std::string read_line(int file) {
  char text[512];
  const ssize_t size = ::pread(file, text, sizeof(text), 0);
  const std::string line(text, text + std::max<ssize_t>(size, 0));
  return line.substr(0, line.find('\n'));
}

// Writes pid and host to the lock file, for the message of a second run. Errors are ignored, since the lock works
// without this text. A file with other contents is left unchanged: it may be a link to a file of the user.
void write_holder(int file) {
  const std::string before = read_line(file);
  if (!before.empty() && !before.starts_with("pid ")) return;
  const std::string text = fmt::format("pid {} on host {}\n", ::getpid(), own_host_name());
  if (::ftruncate(file, 0) == 0) (void)!::pwrite(file, text.data(), text.size(), 0);
}

std::string read_holder(int file) {
  const std::string line = read_line(file);
  return line.starts_with("pid ") ? printable(line) : "another run";
}

// A network file system may keep the lock of a crashed host for a long time. A job that moved to this host must be able
// to continue, so a lock of another host only causes a warning.
bool is_on_other_host(const std::string& holder) {
  return holder.starts_with("pid ") && !holder.ends_with(" on host " + own_host_name());
}

}  // namespace

FolderLock::FolderLock(const std::string& dir, std::chrono::milliseconds patience) {
  FileSystem::real().make_dirs(dir);
  const std::string path = dir + "/.lock";
  file_ = open_lock_file(path, 0666);  // another user may own the file; read access is enough for a lock
  if (!file_) throw_io_error("open", path, errno);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const Locking result = lock_now(file_.get(), path);
    if (result == Locking::done) write_holder(file_.get());
    if (result != Locking::held) return;
    if (std::chrono::steady_clock::now() >= deadline) {
      const std::string holder = read_holder(file_.get());
      if (is_on_other_host(holder)) {
        print_stderr("lockstep: warning: {} may also be writing to {}; if it is still running, stop one of the two\n",
                     holder, dir);
        return;
      }
      throw_error("train: {} is already in use by {}; wait for it, stop it, or choose another --checkpoint-dir", dir,
                  holder);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

bool is_folder_locked(const std::string& dir) {
  const std::string path = dir + "/.lock";
  if (!FileSystem::real().exists(path)) return false;
  const Descriptor file = open_lock_file(path, 0666);
  if (!file) return false;
  // A run that starts now waits for a moment if it finds this lock.
  if (::flock(file.get(), LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK;
  ::flock(file.get(), LOCK_UN);
  return false;
}

FolderLock::~FolderLock() { ::flock(file_.get(), LOCK_UN); }

}  // namespace lockstep
