#include "base/os/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <fstream>
#include <sstream>

#include "base/file.h"
#include "base/os/environment.h"
#include "base/throws.h"
#include "support/program.h"
#include "support/variable.h"

namespace lockstep {
namespace {

// Runs a shell script with its output in a file, and returns that.
std::string output_of(const std::string& script, ProcessSpec spec = {}) {
  const TempDir dir;
  const std::string path = dir.path() + "/out";
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  spec.program = "/bin/sh";
  spec.argv = {"sh", "-c", script};
  spec.streams[1] = file.get();
  const pid_t child = start_process(spec);
  EXPECT_TRUE(comes_true([&] { return process_has_ended(child); }));
  kill_group_and_reap(child);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Process, LeadsItsOwnGroup) { EXPECT_EQ(output_of("test $(ps -o pgid= -p $$) -eq $$ && echo leads"), "leads\n"); }

TEST(Process, HasTheGivenEnvironmentOrThatOfThisProcess) {
  const ScopedVariable variable("LOCKSTEP_TEST_INHERITED", "1");
  EXPECT_EQ(output_of("echo $LOCKSTEP_TEST_INHERITED"), "1\n");
  EXPECT_EQ(output_of("echo $A$LOCKSTEP_TEST_INHERITED", {.environment = {{"A=2"}}}), "2\n");
  std::vector<std::string> many;
  for (int i = 0; i < 100; ++i) many.push_back(fmt::format("LOCKSTEP_TEST_{}={:064}", i, i));
  EXPECT_EQ(output_of("env | grep -c '^LOCKSTEP_TEST_[0-9]*=0*[0-9]*$'", {.environment = many}), "100\n");
}

TEST(Process, StreamsThatAreNotGivenAreEmpty) { EXPECT_EQ(output_of("cat; echo lost >&2; echo end"), "end\n"); }

TEST(Process, StandardStreamsOfThisProcessCanBeExchanged) {
  // The child's output is descriptor 0 of this process, and its input descriptor 1.
  const TempDir dir;
  const std::string path = dir.path() + "/out";
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const Descriptor in(::dup(STDIN_FILENO)), out(::dup(STDOUT_FILENO));
  ::dup2(file.get(), STDIN_FILENO);
  const Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(null.get(), STDOUT_FILENO);
  const pid_t child = start_process(
      {.program = "/bin/sh", .argv = {"sh", "-c", "cat; echo end"}, .streams = {STDOUT_FILENO, STDIN_FILENO, -1}});
  ::dup2(in.get(), STDIN_FILENO);
  ::dup2(out.get(), STDOUT_FILENO);
  EXPECT_TRUE(comes_true([&] { return process_has_ended(child); }));
  EXPECT_EQ(kill_group_and_reap(child), 0);
  std::string line;
  std::getline(std::ifstream(path), line);
  EXPECT_EQ(line, "end");
}

TEST(Process, SignalsHaveTheirDefaultActionAndAreNotBlocked) {
  struct sigaction ignore = {}, before = {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGUSR1, &ignore, &before);
  sigset_t blocked, old;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &old);
  EXPECT_EQ(output_of("grep -E 'Sig(Blk|Ign)' /proc/self/status"),
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(Process, SignalsOfThisThreadAreBlockedOnlyWhileAProcessStarts) {
  sigset_t before, after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  output_of("true");
  EXPECT_THROWS(start_process({.program = "/no/such", .argv = {"such"}}), IoError, "start such: No such file");
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < SIGRTMIN; ++signal)
    EXPECT_EQ(::sigismember(&before, signal), ::sigismember(&after, signal)) << signal;
}

TEST(Process, FailuresToStartAreReported) {
  EXPECT_THROWS(start_process({.program = "/no/such", .argv = {"such"}}), IoError, "start such: No such file");
  EXPECT_THROWS(start_process({.program = "/bin/sh", .argv = {"sh"}, .folder = "/no/such"}), IoError,
                "start in /no/such: No such file or directory");
  EXPECT_THROWS(start_process({.program = "/bin/sh", .argv = {"sh"}, .cpus = {100'000}}), IoError,
                "set the CPU affinity of sh: Invalid argument");
  EXPECT_THROWS(start_detached({.program = "/no/such", .argv = {"such"}}), IoError, "start such: No such file");
}

TEST(Process, ManyThreadsStartProcesses) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 10; ++i) {
        const int code = (10 * t + i) % 100;
        const std::string exit = "exit " + std::to_string(code);
        const pid_t child = start_process({.program = "/bin/sh", .argv = {"sh", "-c", exit}});
        while (!process_has_ended(child)) std::this_thread::yield();
        EXPECT_EQ(kill_group_and_reap(child), code);
      }
    });
  for (std::thread& each : threads) each.join();
}

TEST(Process, DetachedProcessesHaveTheirOwnSessionAndNoOtherDescriptors) {
  const TempDir dir;
  const std::string path = dir.path() + "/out";
  const Descriptor leaked(::open("/dev/null", O_RDONLY));  // not closed by exec
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  start_detached({.program = "/bin/sh",
                  .argv = {"sh", "-c",
                           "test $(ps -o sid= -p $$) != $0 && echo session; pwd; umask; cd /proc/$$/fd; "
                           "for fd in [3-9]; do test -e $fd && readlink $fd; done; echo end",
                           std::to_string(::getsid(0))},
                  .folder = "/",
                  .streams = {-1, file.get(), -1}});
  std::string text;
  EXPECT_TRUE(comes_true([&] {
    std::stringstream read;
    read << std::ifstream(path).rdbuf();
    text = read.str();
    return text.ends_with("end\n");
  }));
  EXPECT_EQ(text, "session\n/\n0077\nend\n");
}

TEST(Process, RaisedFileLimitIsNotInherited) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  raise_open_file_limit();
  EXPECT_EQ(output_of("ulimit -n"), std::to_string(before.rlim_cur) + "\n");
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST(Process, ProgramsAreFoundOnThePath) {
  EXPECT_TRUE(find_program("sh").ends_with("/sh"));
  EXPECT_EQ(find_program("/bin/sh"), "/bin/sh");
  EXPECT_EQ(find_program("no-such-program-here"), "");
  EXPECT_EQ(find_program("/no/such/program"), "");
}

}  // namespace
}  // namespace lockstep
