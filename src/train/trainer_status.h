// Reports progress to Kubeflow Trainer, which shows it in the status of the TrainJob. A background thread sends the
// newest progress, so that a slow or dead controller does not delay training. A failed message is dropped; the first
// failure prints a warning. The training thread calls the logger.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/os/environment.h"
#include "lockstep/loggers.h"
#include "train/log_file.h"

namespace lockstep::detail {

struct TrainerStatusOptions {
  std::string url;
  std::string ca_file;                       // empty: the system's certificates
  std::string token_file;                    // read for every message, because tokens are rotated; empty: no token
  std::chrono::milliseconds interval{5000};  // minimum time between messages, except for the last one
  std::chrono::milliseconds deadline{5000};  // for one message, and for sending the last one at the end
};

// Reads the variables that the controller sets in the pods of a TrainJob. None if KUBEFLOW_TRAINER_SERVER_URL is not
// set. Throws Error if it is not an https URL, because a token is sent to it.
std::optional<TrainerStatusOptions> trainer_status_options(const Environment& environment);

std::shared_ptr<Logger> trainer_status_logger(const TrainerStatusOptions& options, LogClock clock);

}  // namespace lockstep::detail
