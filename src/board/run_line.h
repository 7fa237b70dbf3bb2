// Reads what the list of runs shows without reading the complete metrics file. Safe from any thread.
#pragma once

#include <string>

#include "board/run_store.h"

namespace lockstep::board {

// Fills title, state, steps, times and values from the first and the last lines of the file, and from run.json of the
// folder. `now` is in seconds since 1970. Throws IoError.
void read_run_line(FileSystem& files, const std::string& run_folder, const std::string& metrics_path, double now,
                   RunLine& out);

}  // namespace lockstep::board
