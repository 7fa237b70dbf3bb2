// Processes are started with vfork(): the child borrows the memory of its parent until it executes the program. fork()
// would copy the page tables, which takes long in a process with much memory, and would make pages copy-on-write that a
// GPU or a network adapter accesses. Between vfork() and exec the child must neither allocate nor return; the parent's
// thread waits meanwhile, with all signals blocked, so that no handler runs in the child.
#include "base/os/process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "base/check.h"
#include "base/os/blocked_signals.h"
#include "base/file.h"
#include "base/os/environment.h"

extern char** environ;

namespace lockstep {
namespace {

// The original limit of open files, after raise_open_file_limit() changed it.
std::optional<rlimit> original_file_limit;

// What the child needs before it executes the program.
struct ExecArguments {
  const char* program;
  char* const* argv;
  char* const* environment;
  const char* folder;
  const cpu_set_t* cpus;
  size_t cpu_bytes;
  std::array<int, 3> streams;
  int report;  // for a StartFailure; closed when the program is executed
  int death_signal;
  pid_t parent;
  bool detached;
};

// What the child reports if it cannot execute the program: the failed step and errno.
struct StartFailure {
  int step = 0, error = 0;
};
enum StartStep { kStartFork = 1, kStartStreams, kStartFolder, kStartCpus, kStartProgram };

[[noreturn]] void fail_start(int report, StartStep step) {
  const StartFailure failure{step, errno};
  [[maybe_unused]] const ssize_t written = ::write(report, &failure, sizeof(failure));
  ::_exit(127);
}

// A descriptor that dup2() to a standard stream does not overwrite.
int above_standard_streams(int fd) { return fd > STDERR_FILENO ? fd : ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); }

void set_all_close_on_exec() {
  constexpr unsigned kCloseOnExec = 1U << 2;  // CLOSE_RANGE_CLOEXEC
  if (::syscall(SYS_close_range, 3U, ~0U, kCloseOnExec) == 0) return;
  constexpr rlim_t kMost = 65536;  // kernels before 5.11
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  for (rlim_t fd = 3; fd < std::min(limit.rlim_cur, kMost); ++fd) ::fcntl(static_cast<int>(fd), F_SETFD, FD_CLOEXEC);
}

// Runs in the child. Calls only async-signal-safe functions.
[[noreturn]] void exec_program(const ExecArguments& arguments) {
  if (!arguments.detached) ::setpgid(0, 0);
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &standard, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (arguments.death_signal != 0) {
    ::prctl(PR_SET_PDEATHSIG, arguments.death_signal);
    if (::getppid() != arguments.parent) ::_exit(127);  // the parent died before prctl()
  }
  const int report = above_standard_streams(arguments.report);
  std::array<int, 3> streams = arguments.streams;
  for (int& each : streams) each = above_standard_streams(each);
  for (int stream = 0; stream < 3; ++stream)
    if (::dup2(streams[static_cast<size_t>(stream)], stream) < 0) fail_start(report, kStartStreams);
  if (arguments.detached) {
    set_all_close_on_exec();
    ::umask(077);
  }
  if (*arguments.folder != '\0' && ::chdir(arguments.folder) != 0) fail_start(report, kStartFolder);
  if (arguments.cpus && ::sched_setaffinity(0, arguments.cpu_bytes, arguments.cpus) != 0)
    fail_start(report, kStartCpus);
  if (original_file_limit) ::setrlimit(RLIMIT_NOFILE, &*original_file_limit);
  ::execve(arguments.program, arguments.argv, arguments.environment);
  fail_start(report, kStartProgram);
}

[[gnu::noinline]] pid_t vfork_and_exec(const ExecArguments& arguments) {
  const pid_t child = ::vfork();
  if (child == 0) exec_program(arguments);
  return child;
}

// The child only starts the program in a new session and exits: a program that does not lead its session cannot acquire
// a terminal. It is a fork(), since calls of vfork() cannot be nested. Small processes start detached ones.
pid_t fork_detached(const ExecArguments& arguments) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setsid();
  if (vfork_and_exec(arguments) < 0) fail_start(arguments.report, kStartFork);
  ::_exit(0);
}

class CpuSet {
 public:
  explicit CpuSet(const std::vector<int>& cpus) {
    if (cpus.empty()) return;
    const auto count = static_cast<size_t>(*std::max_element(cpus.begin(), cpus.end()) + 1);
    set_ = CPU_ALLOC(count);
    if (!set_) throw OutOfMemory("start a process: out of memory for its CPU set");
    bytes_ = CPU_ALLOC_SIZE(count);
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

// The pointers are valid as long as `strings`.
std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& each : strings) out.push_back(const_cast<char*>(each.c_str()));
  out.push_back(nullptr);
  return out;
}
std::vector<char*> pointers_to(std::vector<std::string>&&) = delete;

int wait_for_child(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

[[noreturn]] void throw_start_failure(const ProcessSpec& spec, const StartFailure& failure) {
  if (failure.step == kStartFolder) throw_io_error("start in", spec.folder, failure.error);
  if (failure.step == kStartCpus) throw_io_error("set the CPU affinity of", spec.argv[0], failure.error);
  throw_io_error("start", spec.argv[0], failure.error);
}

pid_t start(const ProcessSpec& spec, bool detached) {
  LOCKSTEP_CHECK(!spec.argv.empty());
  const Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) throw_io_error("open", "/dev/null", errno);
  Pipe report = make_pipe();
  const std::vector<char*> argv = pointers_to(spec.argv);
  const std::vector<char*> environment = spec.environment ? pointers_to(*spec.environment) : std::vector<char*>();
  const CpuSet cpus(spec.cpus);
  ExecArguments arguments{.program = spec.program.c_str(),
                          .argv = argv.data(),
                          .environment = spec.environment ? environment.data() : environ,
                          .folder = spec.folder.c_str(),
                          .cpus = cpus.get(),
                          .cpu_bytes = cpus.bytes(),
                          .streams = spec.streams,
                          .report = report.writer.get(),
                          .death_signal = detached ? 0 : spec.death_signal,
                          .parent = ::getpid(),
                          .detached = detached};
  for (int& each : arguments.streams)
    if (each < 0) each = null.get();
  pid_t child = -1;
  {
    const BlockedSignals blocked;
    child = detached ? fork_detached(arguments) : vfork_and_exec(arguments);
  }
  if (child < 0) throw_start_failure(spec, {kStartFork, errno});
  report.writer.close();
  StartFailure failure;
  ssize_t n;
  while ((n = ::read(report.reader.get(), &failure, sizeof(failure))) < 0 && errno == EINTR) continue;
  if (n != 0 || detached) wait_for_child(child);
  if (n != 0) throw_start_failure(spec, failure);
  return child;
}

}  // namespace

pid_t start_process(const ProcessSpec& spec) { return start(spec, false); }

void start_detached(const ProcessSpec& spec) { start(spec, true); }

bool process_has_ended(pid_t child) {
  siginfo_t info = {};
  const int failed = ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT);
  return failed ? errno != EINTR : info.si_pid != 0;
}

int kill_group_and_reap(pid_t child) {
  ::kill(-child, SIGKILL);  // the child is not reaped yet, so its pid is still the id of its group
  return wait_for_child(child);
}

int raise_open_file_limit() {
  constexpr rlim_t kAssumed = 1024;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kAssumed;
  rlimit raised = limit;
  raised.rlim_cur = limit.rlim_max;
  if (limit.rlim_cur != limit.rlim_max && ::setrlimit(RLIMIT_NOFILE, &raised) == 0) {
    if (!original_file_limit) original_file_limit = limit;
    limit = raised;
  }
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, INT_MAX));
}

std::string find_program(std::string_view name) {
  const std::string program(name);
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0 ? program : "";
  const std::string path = environment_variable("PATH").value_or("");
  for (std::string_view rest = path; !rest.empty();) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    const std::string candidate = std::string(rest.substr(0, colon)) + "/" + program;
    if (colon > 0 && ::access(candidate.c_str(), X_OK) == 0) return candidate;
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return "";
}

std::string require_program(std::string_view what, std::string_view name, std::string_view remedy) {
  std::string program = find_program(name);
  if (!program.empty()) return program;
  if (name.find('/') == name.npos) throw_error("{}: \"{}\" was not found on the PATH; {}", what, name, remedy);
  throw_error("{}: \"{}\" is not an executable file; correct its path", what, name);
}

}  // namespace lockstep
