// Ranks as child processes, for tests. Children are forked, so a body may capture variables of the test. Failed
// expectations and exceptions of a child are failures of the test in the parent. Used by one thread, in a program that
// has no other threads when it forks.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "comm/conformance.h"

namespace lockstep::conformance {

// A group of child processes. The destructor kills and reaps those that still run.
class Processes {
 public:
  // Runs body(rank) in n children. When the bodies of all children have returned (except in those that were killed),
  // each child calls release() and exits.
  Processes(int n, const std::function<void(int rank)>& body, std::function<void()> release = {});
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  pid_t pid(int rank) const { return children_[static_cast<size_t>(rank)].pid; }

  // Sends a signal to a child. After SIGKILL, wait() expects the child to end by that signal.
  void signal(int rank, int number);

  // Waits until all children have ended. Adds test failures for their failures, for an unexpected exit status, and for
  // children that had to be killed after `timeout`.
  void wait(std::chrono::seconds timeout = std::chrono::seconds(120));

 private:
  struct Child {
    pid_t pid = -1;
    int pipe = -1;  // its failures as text, then a zero when its body has returned
    std::string text;
    bool returned = false;
    bool killed = false;
  };
  void read(Child& child);
  void open_gate();

  std::vector<Child> children_;
  int gate_ = -1;  // a pipe, closed when all children may exit
};

// A backend whose ranks are child processes. make(rank, n, key) creates the Comm of each in a group called "world";
// every run uses a new key.
using MakeComm = std::function<std::unique_ptr<Comm>(int rank, int n, const std::string& key)>;
Backend processes(const std::string& name, MakeComm make);

// A string that is unique among all calls in all processes.
std::string unique_key();

}  // namespace lockstep::conformance
