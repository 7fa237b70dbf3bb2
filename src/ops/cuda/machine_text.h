// The GPU's own instructions, as functions. Whoever runs kernels elsewhere gives others of the same names.
#pragma once

namespace lockstep {

// What kernels include as "machine.h".
extern const char* const kMachineText;

}  // namespace lockstep
