// What Engine::describe prints.
#pragma once

#include "lockstep/engine.h"

namespace lockstep::detail {

// What a run keeps on each lane of this process between calls: no work space. `specs`: how the parameters lie.
std::vector<LaneMemory> kept_memory(const Model& model, const EngineOptions& options,
                                    const std::vector<ParameterSpecs>& specs);

// `memory`: of each lane of this process; the work space is left out where none was measured.
std::string describe(const Model& model, const EngineOptions& options, const std::vector<ParameterSpecs>& specs,
                     const std::vector<LaneMemory>& memory);

// "1,863,690" (of a number that is not negative); "7.1 MiB".
std::string with_commas(int64_t number);
std::string bytes_text(int64_t bytes);

}  // namespace lockstep::detail
