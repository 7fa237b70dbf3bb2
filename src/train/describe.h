// The text of Engine::describe(), and number formatting for it. Pure functions, safe from any thread.
#pragma once

#include "lockstep/engine.h"

namespace lockstep::detail {

// Memory that a run holds between steps on each lane of this process, so without the workspace. `specs`: the sharding
// of each parameter.
std::vector<LaneMemory> persistent_memory(const Task& task, const EngineOptions& options,
                                          const std::vector<ParameterSpecs>& specs);

// `memory`: one element per lane of this process. The workspace column is omitted if it was not measured.
std::string describe(const Task& task, const EngineOptions& options, const std::vector<ParameterSpecs>& specs,
                     const std::vector<LaneMemory>& memory);

// "1,863,690"; REQUIRES: number >= 0.
std::string with_commas(int64_t number);
// "7.1 MiB".
std::string bytes_text(int64_t bytes);

}  // namespace lockstep::detail
