#include "jobs/local/detach.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"

namespace lockstep {
namespace {

std::vector<char*> c_strings(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& each : strings) out.push_back(const_cast<char*>(each.c_str()));
  out.push_back(nullptr);
  return out;
}

// Runs between fork and exec, where memory must not be allocated.
[[noreturn]] void exec_detached(const char* program, char* const* argv, char* const* environment) {
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &standard, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd)
    if (::dup2(null, fd) < 0) ::_exit(127);
  if (::syscall(SYS_close_range, 3U, ~0U, 0U) != 0) {  // a kernel before 5.9
    rlimit limit = {};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    for (rlim_t fd = 3; fd < limit.rlim_cur && fd < 65536; ++fd) ::close(static_cast<int>(fd));
  }
  ::umask(077);
  if (::chdir("/") != 0) ::_exit(127);
  ::execve(program, argv, environment);
  ::_exit(127);
}

}  // namespace

void start_detached(const std::string& program, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment) {
  std::vector<std::string> words = {"lockstep"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::vector<char*> argv = c_strings(words), variables = c_strings(environment);
  const pid_t middle = ::fork();
  if (middle < 0) throw_io_error("start", program, errno);
  if (middle == 0) {
    ::setsid();
    // Fork again: only a session leader can acquire a controlling terminal.
    const pid_t last = ::fork();
    if (last == 0) exec_detached(program.c_str(), argv.data(), variables.data());
    ::_exit(last < 0 ? errno : 0);
  }
  int status = 0;
  while (::waitpid(middle, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) throw_io_error("start", program, WEXITSTATUS(status));
}

}  // namespace lockstep
