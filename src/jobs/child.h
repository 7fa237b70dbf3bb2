// Child: a child process, started without a shell, that never outlives its owner. It leads its own process group.
// Signals go to the whole group. The group is killed when the Child is destroyed and when its leader has exited. The
// child gets a signal (PR_SET_PDEATHSIG) when the thread that started it dies. Used by the thread that started it.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/descriptor.h"

namespace lockstep {

struct ChildSpec {
  std::vector<std::string> argv = {};         // argv[0] is the program: a path, or a name on the PATH
  std::vector<std::string> environment = {};  // NAME=value; nothing else is inherited
  std::string folder = {};                    // working directory; empty: the current one
  std::vector<int> cpus = {};                 // CPU affinity; empty: that of this process
  std::optional<std::string> input = {};      // written to its standard input, which stays open; nullopt: /dev/null
  int death_signal = SIGTERM;                 // sent when the thread that started the child dies
  // Send signals as lines on standard input ("TERM\n") instead of to the process group; for RemoteCommand.
  bool signals_by_input = false;
  // If positive, standard error is a pseudo-terminal with this many columns; 0: a pipe.
  int terminal_columns = 0;
  int terminal_rows = 24;
};

// How a process ended: with an exit code, or killed by a signal.
struct ExitStatus {
  int code = 0, signal = 0;

  bool success() const { return code == 0 && signal == 0; }
  bool operator==(const ExitStatus&) const = default;
};

class Child {
 public:
  // Throws Error if the program is not found, IoError if it cannot be started.
  explicit Child(const ChildSpec& spec);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }

  // Non-blocking read ends of its standard output and standard error.
  Descriptor& out() { return out_; }
  Descriptor& err() { return err_; }

  // Sends a signal to the process group. Does nothing if the child has exited.
  void send(int signal);

  // Sets the size of its terminal. Does nothing without a terminal.
  void resize(int columns, int rows);

  // The signal that stopped it since the last call; 0: it continued; nullopt: no change. Does not block.
  std::optional<int> poll_stop_change();

  // The exit status; nullopt while it runs. Does not block. After the exit, reaps the child and kills the rest of its
  // process group.
  std::optional<ExitStatus> poll_exit();

 private:
  void reap(int options);

  pid_t pid_ = -1;  // -1: reaped
  bool signals_by_input_ = false;
  bool terminal_ = false;
  Descriptor in_, out_, err_;
  std::optional<ExitStatus> exit_status_;
};

// "SIGTERM"; "signal 77".
std::string signal_name(int signal);

}  // namespace lockstep
