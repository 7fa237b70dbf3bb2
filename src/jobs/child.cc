#include "jobs/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/file.h"
#include "data/process.h"

namespace lockstep {
namespace {

struct Pipe {
  Descriptor reader, writer;
};

Pipe make_pipe() {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_io_error("open", "a pipe", errno);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

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

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& each : strings) out.push_back(const_cast<char*>(each.c_str()));
  out.push_back(nullptr);
  return out;
}

// The original limit of open files, after raise_open_file_limit() changed it.
std::optional<rlimit> original_file_limit;

// What the child needs between fork and exec, where it must not allocate memory.
struct ExecArguments {
  const char* program;
  char* const* argv;
  char* const* environment;
  const char* folder;
  const cpu_set_t* cpus;
  size_t cpu_bytes;
  int in, out, err, report;
  int death_signal;
  pid_t parent;
};

// What the child reports to its parent if it cannot start the program: the failed step and errno.
struct StartFailure {
  int step = 0, error = 0;
};
enum StartStep { kFolder = 1, kCpus, kOutput, kProgram };

[[noreturn]] void fail(const ExecArguments& arguments, StartStep step) {
  const StartFailure failure{step, errno};
  [[maybe_unused]] const ssize_t written = ::write(arguments.report, &failure, sizeof(failure));
  ::_exit(127);
}

// Runs in the child after fork.
[[noreturn]] void exec_program(const ExecArguments& arguments) {
  ::setpgid(0, 0);
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &standard, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (original_file_limit) ::setrlimit(RLIMIT_NOFILE, &*original_file_limit);
  ::prctl(PR_SET_PDEATHSIG, arguments.death_signal);
  if (::getppid() != arguments.parent) ::_exit(127);  // the parent died before prctl()
  if (::dup2(arguments.in, STDIN_FILENO) < 0 || ::dup2(arguments.out, STDOUT_FILENO) < 0 ||
      ::dup2(arguments.err, STDERR_FILENO) < 0)
    fail(arguments, kOutput);
  if (*arguments.folder != '\0' && ::chdir(arguments.folder) != 0) fail(arguments, kFolder);
  if (arguments.cpus && ::sched_setaffinity(0, arguments.cpu_bytes, arguments.cpus) != 0) fail(arguments, kCpus);
  ::execve(arguments.program, arguments.argv, arguments.environment);
  fail(arguments, kProgram);
}

class CpuSet {
 public:
  explicit CpuSet(const std::vector<int>& cpus) {
    if (cpus.empty()) return;
    const int count = *std::max_element(cpus.begin(), cpus.end()) + 1;
    set_ = CPU_ALLOC(static_cast<size_t>(count));
    if (!set_) throw OutOfMemory("start a process: out of memory for its CPU set");
    bytes_ = CPU_ALLOC_SIZE(static_cast<size_t>(count));
    CPU_ZERO_S(bytes_, set_);
    for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), bytes_, set_);
  }
  ~CpuSet() {
    if (set_) CPU_FREE(set_);
  }
  CpuSet(const CpuSet&) = delete;
  CpuSet& operator=(const CpuSet&) = delete;

  const cpu_set_t* get() const { return set_; }
  size_t bytes() const { return bytes_; }

 private:
  cpu_set_t* set_ = nullptr;
  size_t bytes_ = 0;
};

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
  const std::string program = detail::find_program(spec.argv[0]);
  if (program.empty())
    throw_error("start a process: \"{}\" {}", spec.argv[0],
                spec.argv[0].find('/') == std::string::npos ? "was not found on the PATH; give its path"
                                                            : "is not an executable file; correct its path");
  Pipe out = make_pipe();
  Pipe err = terminal_ ? make_terminal(spec.terminal_columns, spec.terminal_rows) : make_pipe();
  Pipe in;
  if (spec.input)
    in = make_pipe();
  else
    in.reader = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe report = make_pipe();
  const std::vector<char*> argv = pointers(spec.argv), environment = pointers(spec.environment);
  const CpuSet cpus(spec.cpus);
  const ExecArguments arguments{.program = program.c_str(),
                                .argv = argv.data(),
                                .environment = environment.data(),
                                .folder = spec.folder.c_str(),
                                .cpus = cpus.get(),
                                .cpu_bytes = cpus.bytes(),
                                .in = in.reader.get(),
                                .out = out.writer.get(),
                                .err = err.writer.get(),
                                .report = report.writer.get(),
                                .death_signal = spec.death_signal,
                                .parent = ::getpid()};
  pid_ = ::fork();
  if (pid_ < 0) throw_io_error("start", spec.argv[0], errno);
  if (pid_ == 0) exec_program(arguments);
  ::setpgid(pid_, pid_);  // the child calls it too; whichever runs first
  report.writer.close();
  StartFailure failure;
  ssize_t n;
  while ((n = ::read(report.reader.get(), &failure, sizeof(failure))) < 0 && errno == EINTR) continue;
  if (n != 0) {
    reap(0);
    if (failure.step == kFolder) throw_io_error("start in", spec.folder, failure.error);
    if (failure.step == kCpus) throw_io_error("set the CPU affinity of", spec.argv[0], failure.error);
    throw_io_error("start", spec.argv[0], failure.error);
  }
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

void raise_open_file_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  if (!original_file_limit) original_file_limit = limit;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

}  // namespace lockstep
