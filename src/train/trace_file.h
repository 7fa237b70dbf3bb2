// Traces of the processes of a job as files in the trace-event format of Chrome, which ui.perfetto.dev opens. A file is
// {"traceEvents": [{"name", "cat", "ph": "X", "ts", "dur", "pid": rank, "tid": lane}, ...]}, with times in
// microseconds. The track after those of the lanes is that of the training loop, and the next one that of the writer of
// checkpoints.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "lane/trace.h"

namespace lockstep::detail {

// The events of a process. `lanes`: the number of its lanes.
std::string trace_json(const std::vector<TraceSpan>& spans, int rank, int lanes);

// FOLDER/rank_<n>.json
std::string rank_trace_path(const std::string& folder, int rank);

// Joins the files of all ranks in one, with names of the tracks. Returns what is missing or damaged, a line each.
// Throws IoError if `file` cannot be written.
std::vector<std::string> join_traces(FileSystem& files, const std::string& folder, int ranks, int lanes,
                                     const std::string& file);

}  // namespace lockstep::detail
