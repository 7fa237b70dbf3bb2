// What the processes of a job print, put together: lines, each with the number of its process, that never mix; a file
// per process; and the last lines of each. Memory is bounded: full() says when to stop reading. Used by one thread.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "jobs/lines.h"

namespace lockstep {

// Bytes on their way to a file descriptor, which need not be a non-blocking one.
class OutputQueue {
 public:
  explicit OutputQueue(int fd);

  int fd() const { return fd_; }
  void add(std::string_view bytes);
  size_t pending() const { return bytes_.size() - written_; }
  // Writes a part that does not block. REQUIRES: poll() says that the descriptor is ready to be written to.
  void write_some();
  // Why nothing can be written any more; 0: it can, or the reader is gone, which is none of our business.
  int error() const { return error_; }

 private:
  int fd_;
  size_t piece_;         // that can be written at once
  bool broken_ = false;  // nothing more is written
  int error_ = 0;
  std::string bytes_;
  size_t written_ = 0;
};

struct OutputOptions {
  int processes = 1;
  bool first_only = false;  // shows what process 0 prints, and nothing of the others
  std::string logs = {};    // a folder for rank_0.log...; empty: none
  int out = 1, err = 2;     // where lines go
  FileSystem* files = &FileSystem::real();
};

class Output {
 public:
  enum class Stream { out, err };

  // Makes the files. Throws IoError.
  explicit Output(const OutputOptions& options);

  // A line that a process has printed.
  void line(int process, Stream stream, const Line& line);
  // What process 0 has drawn on the line of its terminal that has not ended: it stays below all others.
  void draw(std::string_view unfinished);
  // A line of the launcher's own, to standard error.
  void say(std::string_view line);
  // The last lines of a process, to standard error, under a title that says so; nothing when they were shown already.
  void show_last_lines(int process);
  // The very last line, empty when there is none.
  std::string last_line(int process) const;
  // A new start of all processes: last lines are forgotten, and log files have a line that says it.
  void begin_again(std::string_view line);

  // Whether standard error is a terminal that can be drawn on, and its size less what comes before each line.
  bool can_draw() const { return can_draw_; }
  int columns() const;
  int rows() const;

  // For the caller's poll(): queues, of which some may have something to write.
  std::vector<OutputQueue*> queues();
  bool full() const;
  bool pending() const;
  // Why standard output or standard error could not be written, such as a full disk; 0: all was written, or its reader
  // is gone.
  int error() const;

 private:
  struct Process {
    std::string plain_prefix, out_prefix, err_prefix;
    std::deque<std::string> last;  // lines, at most kLastLines
    std::unique_ptr<FileWriter> log;
    int open = -1;  // the stream of which a piece without a newline was written last
  };
  OutputQueue& queue(Stream stream) { return stream == Stream::out && out_ ? *out_ : *err_; }
  void remember(Process& process, const Line& line);
  void write_log(int number, Process& process, Stream stream, const Line& line);
  void put(Stream stream, std::string_view prefix, std::string_view text);

  OutputOptions options_;
  std::unique_ptr<OutputQueue> err_, out_;  // out_ is null when both are the same
  bool can_draw_ = false;
  std::vector<Process> processes_;
  std::string drawn_;  // the line that has not ended
};

}  // namespace lockstep
