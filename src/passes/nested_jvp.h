// jvp() for rows that contain programs. Throws ForwardModeOnly instead of Error, so that a pass may do without a gradient.
#pragma once

#include "program/op.h"

namespace lockstep {

Program nested_jvp(const Program&, const std::vector<bool>& wanted);

}  // namespace lockstep
