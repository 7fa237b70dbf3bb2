// Running another program with a deadline and no shell. Safe from any thread.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {

struct ProcessResult {
  int exit_code = 0;       // 128 + n when signal n ended it
  bool timed_out = false;  // the deadline passed, and the process and all it started were killed
  std::string output;      // the last 64 KiB of standard output and standard error together
};

// Runs arguments[0] (searched on the PATH) in a process group of its own with nothing on standard input, and waits
// until it ends or the deadline passes. Nothing of the group is left running afterwards. Throws IoError when it cannot
// be started.
ProcessResult run_process(const std::vector<std::string>& arguments, std::chrono::milliseconds deadline);

// Full path of a program on the PATH (or the path itself when it has a slash), empty when there is none.
std::string find_program(std::string_view name);

}  // namespace lockstep::detail
