// Which platform this process computes on, for users. Safe from any thread.
#pragma once

#include <string>

namespace lockstep {

// "NVIDIA H200, 139.8 GiB of memory, ...", or "the CPU: <why no GPU is used>". Empty if there is no choice, and if the
// hardware is not usable now: its first use reports the error.
std::string platform_in_use();

}  // namespace lockstep
