// The folder of a run that all processes of a job share. The first process chooses it. Used by the main thread.
#pragma once

#include <string>

namespace lockstep {

// The folder of this run that an earlier attempt of its job has made; empty if there is none. The same in all processes.
std::string find_shared_run_folder();

// Makes the folder of a new run of a task. Throws IoError in all processes if that is impossible, and Error if one of
// them does not see the folder, which is then removed.
std::string make_shared_run_folder(const std::string& task);

}  // namespace lockstep
