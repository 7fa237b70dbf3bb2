// Include this header in a test to get eight virtual devices before the first test runs.
#pragma once

#include "lockstep/devices.h"

namespace lockstep {

inline const bool kEightDevices = (set_cpu_devices(8), true);

}  // namespace lockstep
