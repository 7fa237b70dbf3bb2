// Child: another program, started without a shell and never left behind. It leads a process group of its own, which is
// what signals go to; the group is killed when the Child is destroyed and when its first process has ended. It is sent
// a signal when the thread that started it ends, also by SIGKILL. Used by the thread that started it.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/descriptor.h"

namespace lockstep {

struct ChildSpec {
  std::vector<std::string> argv = {};         // the first one is the program: a path, or a name on the PATH
  std::vector<std::string> environment = {};  // NAME=value, all there are
  std::string folder = {};                    // in which it starts; empty: the current one
  std::vector<int> cpus = {};                 // on which it may run; empty: on those of this process
  std::optional<std::string> input = {};      // written to its standard input, which stays open; none: /dev/null
  int death_signal = SIGTERM;                 // sent to it when the thread that started it ends
  // It is reached through this input: a signal is sent as a line with its name, "TERM", and not to the group.
  bool signals_by_input = false;
  // Its standard error is a terminal with so many columns; 0: a pipe.
  int terminal_columns = 0;
  int terminal_rows = 24;
};

// How a process ended: with an exit code, or by a signal.
struct Ending {
  int code = 0, signal = 0;

  bool well() const { return code == 0 && signal == 0; }
  bool operator==(const Ending&) const = default;
};

class Child {
 public:
  // Throws Error when there is no such program, IoError when it cannot be started.
  explicit Child(const ChildSpec& spec);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }

  // Reading ends, not blocking, of its standard output and standard error.
  Descriptor& out() { return out_; }
  Descriptor& err() { return err_; }

  // Nothing is done when it has ended.
  void send(int signal);

  // The terminal behind its standard error, if it is one, has another width now.
  void resize(int columns, int rows);

  // The signal that has stopped it since the last call, 0 when it continued since; nothing when neither. Never waits.
  std::optional<int> stop_change();

  // Never waits. The first call that gives an answer has reaped it and killed what was left of its group.
  std::optional<Ending> ended();

 private:
  void reap(int options);

  pid_t pid_ = -1;  // -1: reaped
  bool signals_by_input_ = false;
  bool terminal_ = false;
  Descriptor in_, out_, err_;
  std::optional<Ending> ending_;
};

// Lets this process have as many open files as the system allows, for a great number of children. Children get the
// limit that was.
void allow_many_children();

// "SIGTERM"; "signal 77".
std::string signal_name(int signal);

}  // namespace lockstep
