// Gives the tests of this folder 8 devices.
#include <gtest/gtest.h>

#include "lockstep/devices.h"

namespace lockstep {
namespace {

class EightDevices : public testing::Environment {
  void SetUp() override { set_cpu_devices(8); }
};
testing::Environment* const environment = testing::AddGlobalTestEnvironment(new EightDevices);

}  // namespace
}  // namespace lockstep
