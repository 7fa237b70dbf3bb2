// The control plane between real processes that are killed and suspended.
#ifdef LOCKSTEP_WITH_GRPC

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "cluster/control_job.h"
#include "cluster/sockets.h"

namespace lockstep {
namespace {

constexpr const char* kTask = "LOCKSTEP_TEST_CONTROL_TASK";

void say(const std::string& line) {
  const std::string text = "@" + line + "\n";
  (void)!::write(STDOUT_FILENO, text.data(), text.size());
}

size_t count_threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

// Not a test: the program of a process of the job. Reads a command per line and prints its result.
TEST(ControlTask, DISABLED_Run) {
  const char* task = std::getenv(kTask);
  ASSERT_NE(task, nullptr) << "only the other tests run this";
  std::istringstream words(task);
  int id = 0, count = 0, port = 0, heartbeat_ms = 0;
  words >> id >> count >> port >> heartbeat_ms;
  JoinOptions options{.process_id = id,
                      .process_count = count,
                      .coordinator = {"127.0.0.1", port},
                      .token = kTestToken,
                      .initialization_timeout = kGenerous,
                      .heartbeat_timeout = std::chrono::milliseconds(heartbeat_ms),
                      .host = "n" + std::to_string(id)};
  options.on_listening = [](int number) { say("port " + std::to_string(number)); };
  const auto control = join_control(options);
  control->on_failure([](const Failure& failure) {
    say("failed " + describe(failure));
    ::_exit(failure.retryable ? 75 : 1);
  });
  control->progress(7, "all_reduce");
  say("joined");
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line == "barrier") control->barrier("b", kGenerous);
    if (line == "threads") line += " " + std::to_string(count_threads());
    if (line == "exit") ::_exit(0);
    if (line == "shutdown") {
      control->shutdown(kGenerous);
      say("over");
      return;
    }
    say("done " + line);
  }
  ::_exit(3);  // the test process has exited
}

class Process {
 public:
  Process(int id, int count, int port, int heartbeat_ms) {
    int in[2], out[2];
    EXPECT_EQ(::pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::ostringstream task;
    task << kTask << "=" << id << " " << count << " " << port << " " << heartbeat_ms;
    std::vector<std::string> words{"test", "--gtest_also_run_disabled_tests",
                                   "--gtest_filter=ControlTask.DISABLED_Run"};
    std::vector<std::string> variables{task.str()};
    for (char** each = environ; *each; ++each)
      if (!std::string_view(*each).starts_with("GTEST_")) variables.emplace_back(*each);
    EXPECT_EQ(
        ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, pointers(words).data(), pointers(variables).data()),
        0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    to_ = in[1];
    from_ = out[0];
  }
  ~Process() {
    if (pid_ > 0) {
      signal(SIGKILL);
      wait();
    }
    ::close(to_);
    ::close(from_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void signal(int number) const { EXPECT_EQ(::kill(pid_, number), 0); }
  void send(const std::string& line) const {
    const std::string text = line + "\n";
    EXPECT_EQ(::write(to_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // The next line of its output.
  std::string hear() {
    while (true) {
      if (const size_t end = text_.find('\n'); end != std::string::npos) {
        const std::string line = text_.substr(0, end);
        text_.erase(0, end + 1);
        if (line.starts_with('@')) return line.substr(1);
        continue;
      }
      char buffer[4096];
      pollfd waiting = {.fd = from_, .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, std::chrono::milliseconds(kGenerous).count()) <= 0) return "(silence)";
      const ssize_t count = ::read(from_, buffer, sizeof(buffer));
      if (count <= 0) return "(ended)";
      text_.append(buffer, static_cast<size_t>(count));
    }
  }
  // Waits for its end. Returns the exit code, or minus the signal.
  int wait() {
    int status = 0;
    const pid_t pid = std::exchange(pid_, -1);
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> out;
    for (std::string& text : texts) out.push_back(text.data());
    out.push_back(nullptr);
    return out;
  }

  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string text_;
};

// Longer than the pauses of a process on a machine that runs other tests.
constexpr int kHeartbeatMs = 4000;

class ControlProcess : public testing::Test {
 protected:
  void start(int count, int heartbeat_ms = 60'000) {
    processes_.push_back(std::make_unique<Process>(0, count, 0, heartbeat_ms));
    const std::string line = processes_[0]->hear();
    ASSERT_TRUE(line.starts_with("port ")) << line;
    port_ = std::stoi(line.substr(5));
    for (int i = 1; i < count; ++i) processes_.push_back(std::make_unique<Process>(i, count, port_, heartbeat_ms));
    for (auto& process : processes_) ASSERT_EQ(process->hear(), "joined");
    all("barrier");
  }
  void all(const std::string& command) {
    for (auto& process : processes_) process->send(command);
    for (auto& process : processes_) EXPECT_EQ(process->hear(), "done " + command);
  }
  void expect_failure(int process, int cause, const std::string& part) {
    const std::string line = processes_[static_cast<size_t>(process)]->hear();
    EXPECT_TRUE(line.starts_with("failed ")) << line;
    EXPECT_NE(line.find(part), std::string::npos) << line;
    EXPECT_NE(line.find("process " + std::to_string(cause)), std::string::npos) << line;
    EXPECT_EQ(processes_[static_cast<size_t>(process)]->wait(), 75);
  }

  int port_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
};

TEST_F(ControlProcess, EightProcessesJoinAndShutDown) {
  start(8);
  all("barrier");
  for (auto& process : processes_) process->send("shutdown");
  for (auto& process : processes_) {
    EXPECT_EQ(process->hear(), "over");
    EXPECT_EQ(process->wait(), 0);
  }
}

TEST_F(ControlProcess, KilledProcessIsReportedByAllSurvivors) {
  start(3, kHeartbeatMs);
  processes_[1]->signal(SIGKILL);
  for (int i : {0, 2}) expect_failure(i, 1, "(host n1, pid ");
}

TEST_F(ControlProcess, SuspendedProcessIsReportedByAllSurvivors) {
  start(3, kHeartbeatMs);
  processes_[1]->signal(SIGSTOP);
  for (int i : {0, 2}) expect_failure(i, 1, "lost: no heartbeat for 4 s");
}

TEST_F(ControlProcess, ExitedProcessIsReportedByAllSurvivors) {
  start(3, kHeartbeatMs);
  processes_[2]->send("exit");
  for (int i : {0, 1}) expect_failure(i, 2, "(host n2, pid ");
}

// Detected long before the heartbeat timeout, because connections to its port are refused.
TEST_F(ControlProcess, KilledCoordinatorIsReportedByAllSurvivors) {
  start(3);
  processes_[0]->signal(SIGKILL);
  for (int i : {1, 2})
    expect_failure(i, 0,
                   "), coordinator at 127.0.0.1:" + std::to_string(port_) +
                       ": lost: it has refused connections for 1 s; it has exited, see its log");
}

TEST_F(ControlProcess, SuspendedCoordinatorIsReportedByAllSurvivors) {
  start(3, kHeartbeatMs);
  processes_[0]->signal(SIGSTOP);
  for (int i : {1, 2})
    expect_failure(i, 0, "), coordinator at 127.0.0.1:" + std::to_string(port_) + ": lost: no answer for 4 s");
}

// A pending call needs no thread.
TEST_F(ControlProcess, CoordinatorThreadsDoNotGrowWithPendingCalls) {
  constexpr int kCount = 96;
  processes_.push_back(std::make_unique<Process>(0, kCount, 0, 60'000));
  Process& first = *processes_[0];
  const std::string line = first.hear();
  ASSERT_TRUE(line.starts_with("port ")) << line;
  std::vector<std::unique_ptr<Control>> others(kCount - 1);
  on_all(kCount - 1, [&](int i) {
    others[static_cast<size_t>(i)] = join_control({.process_id = i + 1,
                                                   .process_count = kCount,
                                                   .coordinator = {"127.0.0.1", std::stoi(line.substr(5))},
                                                   .token = kTestToken,
                                                   .initialization_timeout = kGenerous,
                                                   .heartbeat_timeout = kGenerous});
  });
  EXPECT_EQ(first.hear(), "joined");
  // All heartbeats are pending at the coordinator; these gets stay pending, too, until the threads are counted.
  std::vector<std::future<std::string>> waiting;
  for (auto& each : others)
    waiting.push_back(std::async(std::launch::async, [&] { return each->get("counted", kGenerous); }));
  others[0]->barrier("alone", kGenerous, {1});
  first.send("threads");
  const std::string answer = first.hear();
  ASSERT_TRUE(answer.starts_with("done threads ")) << answer;
  EXPECT_LT(std::stoi(answer.substr(13)), kCount / 2) << answer;
  others[0]->set("counted", "yes");
  for (auto& each : waiting) EXPECT_EQ(each.get(), "yes");
  first.send("shutdown");
  on_all(kCount - 1, [&](int i) { others[static_cast<size_t>(i)]->shutdown(kGenerous); });
  EXPECT_EQ(first.hear(), "over");
}

}  // namespace
}  // namespace lockstep

#endif
