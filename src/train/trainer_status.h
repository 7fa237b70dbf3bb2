// Progress for Kubeflow Trainer: a TrainJob shows how far its run is when the run tells the controller. A thread of its
// own sends what is newest, so that a slow or dead controller costs a step nothing; what it cannot send is lost, with
// one word on stderr. The logger is called by the thread that trains.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/loggers.h"
#include "sharding/device_table.h"  // Environment
#include "train/log_file.h"

namespace lockstep::detail {

struct TrainerStatusOptions {
  std::string url;
  std::string ca_file;                       // empty: the system's
  std::string token_file;                    // read anew every time, for it is replaced before it expires; empty: none
  std::chrono::milliseconds interval{5000};  // at most one message in so long, but for the last
  std::chrono::milliseconds deadline{5000};  // of one message, and of the end's wait for the last one
};

// From the variables that the controller sets in the pods of a TrainJob; none when KUBEFLOW_TRAINER_SERVER_URL is not
// set. Throws Error when that is no https address: a token is sent there.
std::optional<TrainerStatusOptions> trainer_status_options(const Environment& environment);

std::shared_ptr<Logger> trainer_status_logger(const TrainerStatusOptions& options, LogClock clock);

}  // namespace lockstep::detail
