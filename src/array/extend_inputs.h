// Programs of functions that are traced separately and then called with the same arrays. Pure functions, safe from any
// thread.
#pragma once

#include <span>
#include <vector>

#include "lockstep/trace.h"
#include "program/program.h"

namespace lockstep::detail {

// Returns `program` with a longer list of inputs, in which its own are at `positions`.
ProgramPtr extend_inputs(const Program& program, const std::vector<Type>& inputs, const std::vector<size_t>& positions);

std::vector<Type> types_of(std::span<const Array> arrays);

// {0, ..., own - 1} followed by `captures` positions from `first`.
std::vector<size_t> positions(size_t own, size_t first, size_t captures);

}  // namespace lockstep::detail
