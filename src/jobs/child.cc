#include "jobs/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

#include <cerrno>

#include "base/check.h"
#include "base/file.h"
#include "base/os/process.h"

namespace lockstep {
namespace {

winsize window(int columns, int rows) {
  winsize size = {};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = static_cast<unsigned short>(rows);
  return size;
}

// A pseudo-terminal in raw mode: bytes are not translated.
Pipe make_terminal(int columns, int rows) {
  int master = -1, slave = -1;
  termios raw = {};
  ::cfmakeraw(&raw);
  const winsize size = window(columns, rows);
  if (::openpty(&master, &slave, nullptr, &raw, &size) != 0) throw_io_error("open", "a terminal", errno);
  Pipe out{Descriptor(master), Descriptor(slave)};
  ::fcntl(master, F_SETFD, FD_CLOEXEC);
  ::fcntl(slave, F_SETFD, FD_CLOEXEC);
  return out;
}

void set_nonblocking(const Descriptor& descriptor) {
  ::fcntl(descriptor.get(), F_SETFL, ::fcntl(descriptor.get(), F_GETFL) | O_NONBLOCK);
}

// Writes to the child's standard input. If the child has exited the line is lost; SIGPIPE is suppressed.
void write_line(const Descriptor& to, const std::string& line) {
  sigset_t pipe, before;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const bool broken = ::write(to.get(), line.data(), line.size()) < 0 && errno == EPIPE;
  const timespec now = {};
  if (broken && !::sigismember(&before, SIGPIPE))
    while (::sigtimedwait(&pipe, nullptr, &now) < 0 && errno == EINTR) continue;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

Child::Child(const ChildSpec& spec) : signals_by_input_(spec.signals_by_input), terminal_(spec.terminal_columns > 0) {
  LOCKSTEP_CHECK(!spec.argv.empty());
  const std::string program = require_program("start a process", spec.argv[0], "give its path");
  Pipe in, out = make_pipe();
  Pipe err = terminal_ ? make_terminal(spec.terminal_columns, spec.terminal_rows) : make_pipe();
  if (spec.input) in = make_pipe();
  pid_ = start_process({.program = program,
                        .argv = spec.argv,
                        .environment = spec.environment,
                        .folder = spec.folder,
                        .streams = {in.reader.get(), out.writer.get(), err.writer.get()},
                        .cpus = spec.cpus,
                        .death_signal = spec.death_signal});
  in_ = std::move(in.writer);
  out_ = std::move(out.reader);
  err_ = std::move(err.reader);
  set_nonblocking(out_);
  set_nonblocking(err_);
  if (in_) {
    set_nonblocking(in_);
    write_line(in_, *spec.input);
  }
}

Child::~Child() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);
  reap(0);
}

void Child::send(int signal) {
  if (pid_ < 0) return;
  if (signals_by_input_ && signal != SIGKILL)
    write_line(in_, signal_name(signal).substr(3) + "\n");
  else
    ::kill(-pid_, signal);
}

void Child::resize(int columns, int rows) {
  if (!terminal_ || !err_) return;
  const winsize size = window(columns, rows);
  ::ioctl(err_.get(), TIOCSWINSZ, &size);
  if (pid_ > 0) ::kill(-pid_, SIGWINCH);
}

std::optional<int> Child::poll_stop_change() {
  std::optional<int> out;
  while (pid_ > 0) {
    siginfo_t info = {};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WCONTINUED | WNOHANG) != 0 || info.si_pid == 0)
      break;
    out = info.si_code == CLD_CONTINUED ? 0 : info.si_status;
  }
  return out;
}

std::optional<ExitStatus> Child::poll_exit() {
  if (pid_ > 0) reap(WNOHANG);
  return exit_status_;
}

void Child::reap(int options) {
  siginfo_t info = {};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | options) != 0)
    if (errno != EINTR) {  // reaped elsewhere: the exit status is unknown
      pid_ = -1;
      exit_status_ = ExitStatus{.code = 1};
      return;
    }
  if (info.si_pid == 0) return;
  // The pid cannot be reused before waitpid(), so it still names this process group.
  ::kill(-pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
  pid_ = -1;
  exit_status_ = WIFSIGNALED(status) ? ExitStatus{.signal = WTERMSIG(status)} : ExitStatus{.code = WEXITSTATUS(status)};
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

}  // namespace lockstep
