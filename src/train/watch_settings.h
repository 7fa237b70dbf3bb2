// The settings that watch a run: --metrics-port, --metrics-host, --trace and --trace-steps. Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/engine.h"
#include "train/config.h"

namespace lockstep {

// Throws Error for values that are invalid or have no effect.
void check_watch_settings(const TrainConfig& config);

// The server of --metrics-port, which listens; null: none. Processes of a host take consecutive ports. Throws
// SettingsError if the port is in use. REQUIRES: all processes call it, after they have joined the job.
std::shared_ptr<MetricsServer> open_metrics_server(const TrainConfig& config);

// Throws IoError if the first process cannot write the file of --trace.
void check_trace_file(const TrainConfig& config);
TraceOptions trace_options(const TrainConfig& config);

}  // namespace lockstep
