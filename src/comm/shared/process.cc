#include "comm/shared/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/os/descriptor.h"

namespace lockstep::detail {

namespace {

struct Stat {
  bool exists = false;
  char state = '?';
  long threads = 0;
  uint64_t start_time = 0;
};

Stat read_stat(int64_t pid) {
  char path[32], text[1024];
  std::snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(pid));
  const Descriptor file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  const ssize_t got = read(file.get(), text, sizeof text - 1);
  if (got <= 0) return {};
  text[got] = '\0';
  // The process name, in parentheses, may contain any character, also ')'.
  const char* rest = std::strrchr(text, ')');
  Stat stat;
  unsigned long long start = 0;
  if (!rest || std::sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu",
                           &stat.state, &stat.threads, &start) != 3)
    return {};
  stat.exists = true;
  stat.start_time = start;
  return stat;
}

uint64_t own_namespace() {
  struct stat info;
  return stat("/proc/self/ns/pid", &info) == 0 ? static_cast<uint64_t>(info.st_ino) : 0;
}

}  // namespace

ProcessId this_process() { return {getpid(), read_stat(getpid()).start_time, own_namespace()}; }

bool is_gone(const ProcessId& process) {
  if (process.pid_namespace != own_namespace() || process.pid == getpid()) return false;
  const Stat stat = process.start_time != 0 ? read_stat(process.pid) : Stat{};
  if (!stat.exists) return kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == ESRCH;
  if (stat.start_time != process.start_time) return true;
  // When the main thread has ended, the process looks like a zombie although other threads still run.
  return (stat.state == 'Z' || stat.state == 'X') && stat.threads <= 1;
}

}  // namespace lockstep::detail
