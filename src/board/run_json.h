// The JSON that a board's page reads. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "board/run_store.h"

namespace lockstep::board {

// `{"runs": [...]}`: the list of runs.
std::string list_json(const std::vector<RunLine>& runs);

// A run with its settings, tags, starts and messages.
std::string run_json(const RunStore::Loaded& run);

// The points of a metric as columns: step, time, min, max, mean (null where no value is finite).
std::string series_json(const RunStore::Loaded& run, const std::string& tag,
                        const std::vector<charts::Bucket>& buckets);

}  // namespace lockstep::board
