// Runs another program with a deadline and without a shell. Safe from any thread.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {

struct ProcessResult {
  int exit_code = 0;       // 128 + n if signal n ended it
  bool timed_out = false;  // the deadline passed, and the process group was killed
  std::string output;      // the last 64 KiB of standard output and standard error together
};

// Runs arguments[0] (searched on the PATH) in a new process group with empty standard input, and waits until it ends or
// the deadline passes. Then kills all remaining processes of the group. Throws IoError when it cannot be started.
ProcessResult run_process(const std::vector<std::string>& arguments, std::chrono::milliseconds deadline);

// The full path of a program on the PATH, or the path itself if it has a slash. Empty if it does not exist.
std::string find_program(std::string_view name);

}  // namespace lockstep::detail
