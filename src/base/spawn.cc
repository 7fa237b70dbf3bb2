#include "base/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"

extern char** environ;

namespace lockstep {

pid_t spawn_program(const std::string& program, const std::vector<std::string>& argv,
                    const std::array<int, 3>& streams) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int i = 0; i < 3; ++i) {
    const int from = streams[static_cast<size_t>(i)];
    if (from >= 0)
      posix_spawn_file_actions_adddup2(&actions, from, i);
    else
      posix_spawn_file_actions_addopen(&actions, i, "/dev/null", O_RDWR, 0);
  }
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);

  pid_t child = -1;
  const int error = posix_spawnp(&child, program.c_str(), &actions, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw_io_error("run", argv[0], error);
  return child;
}

bool has_ended(pid_t child) {
  siginfo_t info = {};
  const int failed = ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT);
  return failed ? errno != EINTR : info.si_pid != 0;
}

int end_group(pid_t child) {
  ::kill(-child, SIGKILL);  // the child is not reaped yet, so its pid is still the id of its group
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace lockstep
