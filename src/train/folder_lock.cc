#include "train/folder_lock.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/printable.h"
#include "base/say.h"

namespace lockstep {
namespace {

enum class Locking { done, held, impossible };

Locking lock_now(int file, const std::string& path) {
  while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Locking::held;
    const bool impossible = errno == ENOLCK || errno == ENOTSUP || errno == EOPNOTSUPP || errno == ENOSYS ||
                            errno == EBADF;  // NFS wants to write
    if (impossible) return Locking::impossible;
    if (errno != EINTR) throw_io_error("lock", path, errno);
  }
  return Locking::done;
}

std::string host_name() {
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  return host;
}

std::string read_line(int file) {
  char text[512];
  const ssize_t size = ::pread(file, text, sizeof(text), 0);
  const std::string line(text, text + std::max<ssize_t>(size, 0));
  return line.substr(0, line.find('\n'));
}

// For a second run that finds the folder locked. A lock holds without it, on a full disk for instance. A file that
// holds something else is another name of a file that is not ours.
void write_holder(int file) {
  const std::string before = read_line(file);
  if (!before.empty() && !before.starts_with("pid ")) return;
  const std::string text = fmt::format("pid {} on host {}\n", ::getpid(), host_name());
  if (::ftruncate(file, 0) == 0) (void)!::pwrite(file, text.data(), text.size(), 0);
}

std::string read_holder(int file) {
  const std::string line = read_line(file);
  return line.starts_with("pid ") ? printable(line) : "another run";
}

// A network's disk may hold the lock of a machine that went down for long, and a job that was moved from there must go
// on: of other machines' runs people are told only.
bool is_elsewhere(const std::string& holder) {
  return holder.starts_with("pid ") && !holder.ends_with(" on host " + host_name());
}

}  // namespace

FolderLock::FolderLock(const std::string& dir, std::chrono::milliseconds patience) {
  FileSystem::real().make_dirs(dir);
  const std::string path = dir + "/.lock";
  file_ = open_lock_file(path, 0666);  // another user may have made it: a lock needs no more than to read it
  if (file_ < 0) throw_io_error("open", path, errno);
  try {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (;;) {
      const Locking result = lock_now(file_, path);
      if (result == Locking::done) write_holder(file_);
      if (result != Locking::held) return;
      if (std::chrono::steady_clock::now() >= deadline) {
        const std::string holder = read_holder(file_);
        if (is_elsewhere(holder)) {
          say("lockstep: {} may be writing to {}, too: if it still runs, end one of both\n", holder, dir);
          return;
        }
        throw_error(
            "train: the checkpoints in {} are being written by {}; wait for it, end it, or choose another "
            "--checkpoint-dir",
            dir, holder);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  } catch (...) {
    ::close(file_);
    throw;
  }
}

FolderLock::~FolderLock() {
  ::flock(file_, LOCK_UN);
  ::close(file_);
}

}  // namespace lockstep
