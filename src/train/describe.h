// What Engine::describe prints.
#pragma once

#include "lockstep/engine.h"

namespace lockstep::detail {

// `specs`: how the parameters lie. Memory is that of the lane that holds most.
std::string describe(const Model& model, const EngineOptions& options, const std::vector<ParameterSpecs>& specs);

// "1,863,690" (of a number that is not negative); "7.1 MiB".
std::string with_commas(int64_t number);
std::string bytes_text(int64_t bytes);

}  // namespace lockstep::detail
