// GPU instructions, wrapped as functions. An emulator of kernels supplies functions of the same names.
#pragma once

namespace lockstep {

// The text that kernels include as "machine.h".
extern const char* const kMachineText;

}  // namespace lockstep
