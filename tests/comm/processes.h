// Ranks that are processes, for tests: children of this one, made by fork(), so that a body may capture what it likes.
// What a child fails to expect, or throws, is a failure of the test that runs here. Used by one thread, in a program
// that has no other threads when children are made.
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

// A group of children. One that is destroyed kills and reaps those that are left.
class Processes {
 public:
  // Runs body(rank) in n children. A child whose body has returned calls release() and ends when all have: those that
  // were killed are not waited for.
  Processes(int n, const std::function<void(int rank)>& body, std::function<void()> release = {});
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  pid_t pid(int rank) const { return children_[static_cast<size_t>(rank)].pid; }

  // Sends a signal. A child that was sent SIGKILL is expected to end that way.
  void signal(int rank, int number);

  // Waits until all have ended, and adds a failure for what they failed, for one that ended otherwise than it should,
  // and for one that had to be killed because the time was over.
  void wait(std::chrono::seconds patience = std::chrono::seconds(120));

 private:
  struct Child {
    pid_t pid = -1;
    int pipe = -1;  // its failures as text, then a zero when its body has returned
    std::string text;
    bool returned = false;
    bool killed = false;
  };
  void read(Child& child);
  void let_go();

  std::vector<Child> children_;
  int gate_ = -1;  // closed when everybody may end
};

// Processes as the ranks of a backend: make(rank, n, key) gives each its Comm of a group called "world", where the key
// is another one for every run.
using MakeComm = std::function<std::unique_ptr<Comm>(int rank, int n, const std::string& key)>;
Backend processes(const std::string& name, MakeComm make);

// A string that no other call, in this process or another, gives.
std::string unique_key();

}  // namespace lockstep::conformance
