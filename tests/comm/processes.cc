#include "comm/processes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace lockstep::conformance {

namespace {

using Clock = std::chrono::steady_clock;

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;  // the parent has ended
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

// Sends the failures of a child to its parent.
class FailureReporter : public testing::EmptyTestEventListener {
 public:
  explicit FailureReporter(int file) : file_(file) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    write_all(file_, fmt::format("{}:{}: {}\n", result.file_name() ? result.file_name() : "unknown file",
                                 result.line_number(), result.message()));
  }

 private:
  int file_;
};

[[noreturn]] void run_child(int rank, const std::function<void(int)>& body, const std::function<void()>& release,
                            int pipe, int gate) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new FailureReporter(pipe));
  try {
    body(rank);
  } catch (const std::exception& error) {
    write_all(pipe, fmt::format("throws: {}\n", error.what()));
  }
  write_all(pipe, std::string_view("\0", 1));
  char nothing = 0;
  while (::read(gate, &nothing, 1) < 0 && errno == EINTR) {
  }
  try {
    if (release) release();
  } catch (const std::exception& error) {
    write_all(pipe, fmt::format("throws at the end: {}\n", error.what()));
  }
  _exit(0);
}

}  // namespace

Processes::Processes(int n, const std::function<void(int rank)>& body, std::function<void()> release)
    : children_(static_cast<size_t>(n)) {
  std::fflush(nullptr);  // otherwise each child would print the buffered output again
  int gate[2];
  if (pipe(gate) != 0) std::abort();
  gate_ = gate[1];
  for (int rank = 0; rank < n; ++rank) {
    Child& child = children_[static_cast<size_t>(rank)];
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    child.pid = fork();
    if (child.pid == 0) {
      close(gate[1]);
      close(ends[0]);
      for (const Child& earlier : children_)
        if (earlier.pipe >= 0) close(earlier.pipe);
      run_child(rank, body, release, ends[1], gate[0]);
    }
    close(ends[1]);
    child.pipe = ends[0];
    if (child.pid < 0) ADD_FAILURE() << "fork: " << std::strerror(errno);
  }
  close(gate[0]);
}

Processes::~Processes() {
  for (Child& child : children_) {
    if (child.pid > 0) {
      kill(child.pid, SIGKILL);
      while (waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    if (child.pipe >= 0) close(child.pipe);
  }
  open_gate();
}

void Processes::signal(int rank, int number) {
  Child& child = children_[static_cast<size_t>(rank)];
  if (number == SIGKILL) child.killed = true;
  if (child.pid > 0) kill(child.pid, number);
}

void Processes::open_gate() {
  if (gate_ >= 0) close(std::exchange(gate_, -1));
}

void Processes::read(Child& child) {
  char text[4096];
  const ssize_t got = ::read(child.pipe, text, sizeof text);
  if (got < 0 && errno == EINTR) return;
  if (got > 0) {
    const std::string_view all(text, static_cast<size_t>(got));
    if (all.find('\0') != all.npos) child.returned = true;
    child.text += all;
    return;
  }
  close(std::exchange(child.pipe, -1));
}

void Processes::wait(std::chrono::seconds timeout) {
  const auto deadline = Clock::now() + timeout;
  const auto open = [](const Child& child) { return child.pipe >= 0; };
  while (std::ranges::any_of(children_, open)) {
    if (std::ranges::all_of(children_, [&](const Child& child) { return child.returned || !open(child); })) open_gate();
    std::vector<pollfd> files;
    for (const Child& child : children_) files.push_back({child.pipe, POLLIN, 0});
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) break;
    if (poll(files.data(), files.size(), static_cast<int>(left)) < 0 && errno != EINTR) std::abort();
    for (size_t i = 0; i < files.size(); ++i)
      if (files[i].revents != 0) read(children_[i]);
  }
  open_gate();
  for (size_t rank = 0; rank < children_.size(); ++rank) {
    Child& child = children_[rank];
    if (child.pid <= 0) continue;
    const bool late = open(child);
    if (late) kill(child.pid, SIGKILL);
    int status = 0;
    while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
    child.pid = -1;
    std::erase(child.text, '\0');
    if (!child.text.empty()) ADD_FAILURE() << "rank " << rank << ": " << child.text;
    if (late)
      ADD_FAILURE() << "rank " << rank << " has not ended in " << timeout.count() << " s";
    else if (WIFSIGNALED(status) && !(child.killed && WTERMSIG(status) == SIGKILL))
      ADD_FAILURE() << "rank " << rank << " was ended by signal " << WTERMSIG(status);
    else if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
      ADD_FAILURE() << "rank " << rank << " ended with status " << WEXITSTATUS(status);
  }
}

Backend processes(const std::string& name, MakeComm make) {
  return {name, [make = std::move(make)](int n, const std::function<void(Comm&)>& body) {
            const std::string key = unique_key();
            std::unique_ptr<Comm> comm;  // in each child its own
            Processes children(
                n,
                [&](int rank) {
                  comm = make(rank, n, key);
                  try {
                    body(*comm);
                  } catch (const std::exception& error) {
                    comm->abort(error.what());
                    throw;
                  }
                },
                [&] { comm.reset(); });
            children.wait();
          }};
}

std::string unique_key() {
  static int calls = 0;
  return fmt::format("test {} {} {}", getpid(), Clock::now().time_since_epoch().count(), ++calls);
}

}  // namespace lockstep::conformance
