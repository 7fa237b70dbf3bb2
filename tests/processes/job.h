// Helpers for jobs of several `lockstep` processes: how to run them, and their losses.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "support/listener.h"
#include "support/program.h"

namespace lockstep {

// A few steps of `lockstep train` on eight devices in each process. The batch divides by four of them.
inline Words train_words(const std::string& log_dir) {
  return {program_path(), "train",     "--devices", "8",       "--dataset",   "synthetic", "--batch-size",
          "64",           "--steps",   "6",         "--quiet", "--log-every", "1",         "--loggers",
          "csv",          "--log-dir", log_dir};
}

// The values of a metric that the job logged, one per step.
inline std::vector<double> losses(const std::string& log_dir) {
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(log_dir + "/metrics.csv");
  std::istringstream lines(std::string(bytes.begin(), bytes.end()));
  std::string line, cell;
  std::getline(lines, line);
  size_t column = 0;
  for (std::istringstream cells(line); std::getline(cells, cell, ',') && cell != "loss";) ++column;
  std::vector<double> out;
  while (std::getline(lines, line)) {
    std::istringstream cells(line);
    for (size_t i = 0; i <= column; ++i) std::getline(cells, cell, ',');
    if (!cell.empty()) out.push_back(std::strtod(cell.c_str(), nullptr));
  }
  return out;
}

// The same for a single process.
inline const std::vector<double>& losses_of_one() {
  static const std::vector<double> all = [] {
    const TempDir dir;
    const auto result = RunningProgram(Words{"timeout", "60"} + train_words(dir.path())).wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return losses(dir.path());
  }();
  return all;
}

// The order of summation differs between process counts, so the last bits differ.
inline void expect_trained_like_one(const std::string& log_dir) {
  const std::vector<double> all = losses(log_dir), one = losses_of_one();
  ASSERT_EQ(one.size(), 6u);
  ASSERT_EQ(all.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(all[i], one[i], 1e-5 * std::abs(one[i])) << "step " << i + 1;
}

// Runs processes that find each other through variables. `before` gives the words before the program of each, such as
// `env X=1`. Processes are killed after a minute.
class Job {
 public:
  explicit Job(const std::vector<Words>& before, const Words& program, std::string coordinator = "") {
    if (coordinator.empty()) coordinator = "127.0.0.1:" + std::to_string(unused_port());
    for (size_t i = 0; i < before.size(); ++i)
      processes_.push_back(std::make_unique<RunningProgram>(
          Words{"timeout", "60"} + before[i] +
          Words{"env", "LOCKSTEP_TOKEN=0123456789abcdef0123456789abcdef", "LOCKSTEP_COORDINATOR=" + coordinator,
                "LOCKSTEP_NUM_PROCESSES=" + std::to_string(before.size()), "LOCKSTEP_PROCESS_ID=" + std::to_string(i)} +
          program));
  }

  std::vector<RunningProgram::Result> wait() {
    std::vector<RunningProgram::Result> results;
    for (const auto& process : processes_) results.push_back(process->wait());
    return results;
  }
  void expect_success() {
    for (const auto& result : wait()) EXPECT_EQ(result.exit_code, 0) << result.err;
  }

 private:
  std::vector<std::unique_ptr<RunningProgram>> processes_;
};

inline Words with(const Words& variables) { return Words{"env"} + variables; }
inline Words on_host(const std::string& name, const Words& variables = {}) {
  return with(Words{"LOCKSTEP_TEST_HOST=" + name} + variables);
}

inline bool has_program(const std::string& name) {
  return RunningProgram({"/bin/sh", "-c", "command -v " + name}).wait().exit_code == 0;
}

}  // namespace lockstep
