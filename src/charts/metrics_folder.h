// Where the metrics of a run are. Safe from any thread.
#pragma once

#include <string>

#include "base/file.h"

namespace lockstep::charts {

// The metrics.jsonl of a run's folder, of its log/, or the path itself if it is a file; empty if there is none.
std::string find_metrics_file(FileSystem& files, const std::string& path);

// The name of a run in charts: the last part of the path of its folder.
std::string run_name(const std::string& path);

}  // namespace lockstep::charts
