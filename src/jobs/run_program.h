// Runs another program to its end, without a shell: sbatch, kubectl. Safe from any thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace lockstep {

struct ProgramResult {
  int code = 0;  // 128 + n for signal n
  std::string out, err;
};

// Gives the program `input`, then the end of its input, and waits until it ends. Throws IoError when it has not ended
// after `deadline` (then it is killed), and Error when there is no such program.
ProgramResult run_program(const std::vector<std::string>& argv, const std::string& input = {},
                          std::chrono::milliseconds deadline = std::chrono::seconds(60));

}  // namespace lockstep
