// Runs a program such as sbatch or npm until it ends, without a shell. Safe from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

struct ProgramOptions {
  std::string input = {};  // its standard input
  std::chrono::milliseconds deadline = std::chrono::seconds(60);
  bool return_at_deadline = false;        // with `timed_out`, instead of throwing IoError
  bool merge_streams = false;             // standard error goes to `out` too, in the order of the writes
  size_t max_output = size_t{256} << 20;  // bytes of a stream
  bool keep_tail = false;                 // of a longer stream, instead of throwing IoError
};

struct ProgramResult {
  int code = 0;            // 128 + n for signal n
  bool timed_out = false;  // the deadline passed, and the program was killed
  std::string out = {}, err = {};
};

// Runs a program in a process group of its own and waits until it ends or the deadline passes. Then kills all remaining
// processes of the group. argv[0] is a path or a name on the PATH. Throws Error if the program is not found, IoError if
// it cannot be started.
ProgramResult run_program(const std::vector<std::string>& argv, const ProgramOptions& options = {});

}  // namespace lockstep
