// Runs a program such as sbatch or kubectl to completion, without a shell. Safe from any thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace lockstep {

struct ProgramResult {
  int code = 0;  // 128 + n for signal n
  std::string out, err;
};

// Runs the program with `input` as its standard input, and waits until it exits. Kills it after `deadline` and throws
// IoError. Throws Error if the program is not found.
ProgramResult run_program(const std::vector<std::string>& argv, const std::string& input = {},
                          std::chrono::milliseconds deadline = std::chrono::seconds(60));

}  // namespace lockstep
