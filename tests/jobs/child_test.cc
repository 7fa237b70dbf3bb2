#include "jobs/child.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>

#include "base/file.h"
#include "base/throws.h"
#include "jobs/launch.h"
#include "lane/cpus.h"
#include "support/program.h"

namespace lockstep {
namespace {

ChildSpec shell(const std::string& script) {
  return {.argv = {"sh", "-c", script}, .environment = {"PATH=/usr/bin:/bin"}};
}

// Reads to the end of the stream or, if `until` is set, until that text was read.
std::string read_all(Descriptor& from, const std::string& until = "") {
  std::string out;
  char bytes[4096];
  for (;;) {
    pollfd ready = {from.get(), POLLIN, 0};
    if (::poll(&ready, 1, 60'000) == 0) return out + "(timed out)";
    const ssize_t n = ::read(from.get(), bytes, sizeof(bytes));
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return out;
    if (n > 0) out.append(bytes, static_cast<size_t>(n));
    if (!until.empty() && out.find(until) != out.npos) return out;
  }
}

ExitStatus wait_for_exit(Child& child) {
  for (int i = 0; i < 60'000; ++i) {
    if (const auto exit_status = child.poll_exit()) return *exit_status;
    ::poll(nullptr, 0, 1);
  }
  ADD_FAILURE() << "the child does not exit";
  return {};
}

bool is_alive(pid_t pid) { return ::kill(pid, 0) == 0; }

TEST(Child, HasItsArgumentsVariablesFolderAndOutputs) {
  const TempDir dir;
  ChildSpec spec = shell("printf '%s|' \"$@\"; pwd -P; echo $X; cat; echo oops >&2; exit 7");
  spec.argv.insert(spec.argv.end(), {"sh", "a b", "", "*"});
  spec.environment.push_back("X=1 2");
  spec.folder = dir.path();
  Child child(spec);
  EXPECT_EQ(read_all(child.out()), "a b||*|" + dir.path() + "\n1 2\n");
  EXPECT_EQ(read_all(child.err()), "oops\n");
  EXPECT_EQ(wait_for_exit(child), (ExitStatus{.code = 7}));
  EXPECT_EQ(wait_for_exit(child), (ExitStatus{.code = 7}));
}

TEST(Child, ReportsTheSignalThatKilledIt) {
  Child child(shell("kill -s SEGV $$"));
  EXPECT_EQ(wait_for_exit(child), (ExitStatus{.signal = SIGSEGV}));
  child.send(SIGTERM);  // has no effect
}

TEST(Child, HasFailedIfItsExitStatusWasReadElsewhere) {
  Child child(shell("exit 0"));
  EXPECT_EQ(::waitpid(child.pid(), nullptr, 0), child.pid());
  EXPECT_EQ(wait_for_exit(child), (ExitStatus{.code = 1}));
}

TEST(Child, HasDefaultSignalHandlers) {
  ::signal(SIGXFSZ, SIG_IGN);
  Child child(shell("kill -s XFSZ $$; echo survived"));
  ::signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(wait_for_exit(child), (ExitStatus{.signal = SIGXFSZ}));
}

TEST(Child, RunsOnItsCores) {
  const std::vector<int> cpus = affinity_cpus();
  ASSERT_FALSE(cpus.empty());
  ChildSpec spec = shell("grep Cpus_allowed_list /proc/self/status");
  spec.cpus = {cpus.back()};
  Child child(spec);
  EXPECT_EQ(read_all(child.out()), "Cpus_allowed_list:\t" + std::to_string(cpus.back()) + "\n");
}

TEST(Child, KillsItsProcessGroup) {
  for (const char* script : {"sleep 600 & echo $!; exit 0", "trap '' TERM; sleep 600 & echo $!; wait"}) {
    pid_t grandchild = 0;
    {
      Child child(shell(script));
      grandchild = std::stoi(read_all(child.out(), "\n"));
      if (std::string_view(script).starts_with("sleep")) {
        EXPECT_EQ(wait_for_exit(child), ExitStatus());
      }
    }
    EXPECT_TRUE(is_gone_soon(grandchild));
  }
}

TEST(Child, DiesWithTheProcessThatStartedIt) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    Child child(shell("echo ready; sleep 600"));
    read_all(child.out(), "ready");
    const pid_t pid = child.pid();
    [[maybe_unused]] const ssize_t n = ::write(ends[1], &pid, sizeof(pid));
    ::pause();
    ::_exit(0);
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  EXPECT_TRUE(is_alive(child));
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  EXPECT_TRUE(is_gone_soon(child));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Child, MayHaveATerminal) {
  ChildSpec spec = shell("test -t 2 && echo yes; test -t 1 || echo no; stty size <&2; printf 'a\\nb' >&2");
  spec.terminal_columns = 77;
  spec.terminal_rows = 33;
  Child child(spec);
  EXPECT_EQ(read_all(child.out()), "yes\nno\n33 77\n");
  EXPECT_EQ(read_all(child.err()), "a\nb");
}

TEST(Child, SendsSignalsAsLinesOfInput) {
  ChildSpec spec = shell("while read line; do echo \"<$line>\"; test $line = INT && exit; done");
  spec.input = "first\n";
  spec.signals_by_input = true;
  Child child(spec);
  child.send(SIGUSR1);
  child.send(SIGINT);
  EXPECT_EQ(read_all(child.out()), "<first>\n<USR1>\n<INT>\n");
  EXPECT_EQ(wait_for_exit(child), ExitStatus());
  Child gone(spec);
  gone.send(SIGINT);
  read_all(gone.out());
  gone.send(SIGTERM);  // a closed input must not raise SIGPIPE
}

TEST(Child, ReportsWhyAProgramCannotStart) {
  EXPECT_THROWS(Child({.argv = {"no-such-program"}}), Error,
                "start a process: \"no-such-program\" was not found on the PATH; give its path");
  EXPECT_THROWS(Child({.argv = {"/etc/passwd"}}), Error,
                "start a process: \"/etc/passwd\" is not an executable file; correct its path");
  EXPECT_THROWS(Child({.argv = {"sh"}, .folder = "/no/such"}), IoError, "start in /no/such: No such file or directory");
  EXPECT_THROWS(Child({.argv = {"sh"}, .cpus = {16000}}), IoError, "set the CPU affinity of sh: Invalid argument");
  const TempDir dir;
  const std::string file = dir.path() + "/program";
  FileSystem::real().write(file, std::vector<uint8_t>{0, 1, 2});
  ASSERT_EQ(::chmod(file.c_str(), 0755), 0);
  EXPECT_THROWS(Child({.argv = {file}}), IoError, "start " + file + ": Exec format error");
}

TEST(Child, SignalsHaveNames) {
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(500), "signal 500");
}

TEST(Launch, BackoffDoublesUpToAMinute) {
  using std::chrono::milliseconds;
  const milliseconds second(1000);
  EXPECT_EQ(restart_backoff(1, second), second);
  EXPECT_EQ(restart_backoff(2, second), 2 * second);
  EXPECT_EQ(restart_backoff(6, second), 32 * second);
  EXPECT_EQ(restart_backoff(7, second), 60 * second);
  EXPECT_EQ(restart_backoff(1'000'000, second), 60 * second);
  EXPECT_EQ(restart_backoff(3, 100 * second), 100 * second);
  EXPECT_EQ(restart_backoff(1'000'000, milliseconds(0)), milliseconds(0));
}

}  // namespace
}  // namespace lockstep
