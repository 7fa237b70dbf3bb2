// Merges the output of a job's processes: complete lines, each prefixed with its process ("[1] ..."), an optional log
// file per process, and the last lines of each for error reports. Memory is bounded: while full() is true the caller
// must not read more. Used by one thread.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "jobs/lines.h"

namespace lockstep {

// Bytes waiting to be written to a file descriptor, which may be a blocking one.
class OutputQueue {
 public:
  explicit OutputQueue(int fd);

  int fd() const { return fd_; }
  void add(std::string_view bytes);
  size_t pending() const { return bytes_.size() - written_; }
  // Writes as much as cannot block. REQUIRES: poll() reported the descriptor as writable.
  void write_some();
  // The errno of a failed write; 0: none. A reader that closed the pipe (EPIPE) is not an error.
  int error() const { return error_; }

 private:
  int fd_;
  size_t max_write_;     // a write of this size does not block
  bool broken_ = false;  // a write failed; all further bytes are dropped
  int error_ = 0;
  std::string bytes_;
  size_t written_ = 0;
};

struct OutputOptions {
  int processes = 1;
  bool first_only = false;  // print only the output of process 0
  std::string logs = {};    // folder of the log files rank_0.log...; empty: no log files
  int out = 1, err = 2;     // the descriptors to print to
  FileSystem* files = &FileSystem::real();
};

class JobOutput {
 public:
  enum class Stream { out, err };

  // Creates the log files. Throws IoError.
  explicit JobOutput(const OutputOptions& options);

  // Prints a line of a process, and appends it to the process's log.
  void add_line(int process, Stream stream, const OutputLine& line);
  // Sets the status line of process 0 (its unfinished terminal line), which stays below all other lines.
  void draw(std::string_view unfinished);
  // Prints a message of the launcher to standard error.
  void print_message(std::string_view line);
  // Prints the last lines of a process to standard error, with a title. Does nothing if they were printed already.
  void show_last_lines(int process);
  // The last line of a process that may explain its exit; empty if it printed none.
  std::string last_line(int process) const;
  // Marks a restart of all processes: forgets their last lines and writes `line` to their logs.
  void mark_restart(std::string_view line);

  // Whether standard error is a terminal that supports a status line; its size without the prefix of each line.
  bool can_draw() const { return can_draw_; }
  int columns() const;
  int rows() const;

  // The queues, for the caller's poll().
  std::vector<OutputQueue*> queues();
  // Whether more than 1 MiB is pending.
  bool full() const;
  bool pending() const;
  // The errno of a failed write to standard output or standard error, such as ENOSPC; 0: none. A closed pipe is not an
  // error.
  int error() const;

 private:
  struct Process {
    std::string plain_prefix, out_prefix, err_prefix;
    std::deque<std::string> last;  // the last lines, at most kLastLines
    std::unique_ptr<FileWriter> log;
    int open = -1;  // the stream whose unfinished line the log ends with; -1: none
  };
  OutputQueue& queue(Stream stream) { return stream == Stream::out && out_ ? *out_ : *err_; }
  void remember(Process& process, const OutputLine& line);
  void write_log(int number, Process& process, Stream stream, const OutputLine& line);
  std::string status_line() const;
  void put(Stream stream, std::string_view prefix, std::string_view text);

  OutputOptions options_;
  std::unique_ptr<OutputQueue> err_, out_;  // out_ is null if both are the same file
  bool can_draw_ = false;
  std::vector<Process> processes_;
  std::string drawn_;  // the status line
};

}  // namespace lockstep
