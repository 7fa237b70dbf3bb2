// RunRecorder: writes run.json in the folder of a run while it trains. A file that cannot be written causes one warning;
// training continues. Not thread-safe.
#pragma once

#include <memory>
#include <string>

#include "train/log_file.h"
#include "train/run_record.h"

namespace lockstep {

class RunRecorder {
 public:
  // Begins with the facts of this process, and with the creation time and metrics of an earlier record in the folder.
  RunRecorder(std::string folder, RunRecord facts, FileSystem& files = FileSystem::real(),
              detail::LogClock clock = detail::LogClock::real());
  ~RunRecorder();
  RunRecorder(const RunRecorder&) = delete;
  RunRecorder& operator=(const RunRecorder&) = delete;

  // A logger that records the progress of the run, at most every few seconds. May outlive the recorder, but not be
  // called then.
  std::shared_ptr<Logger> logger();
  // Records how the run ended. `error`: why it failed.
  void end(RunState state, const std::string& error = {});

 private:
  class Progress;
  std::shared_ptr<Progress> progress_;
};

// The facts of this process for a record: program, command line, host, environment, devices. All processes of a job have
// joined it.
RunRecord facts_of_this_process();

}  // namespace lockstep
