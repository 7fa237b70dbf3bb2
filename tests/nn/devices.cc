// The tests of this program run on 8 virtual devices.
#include <gtest/gtest.h>

#include "lockstep/devices.h"

namespace lockstep {
namespace {

class EightDevices : public testing::Environment {
 public:
  void SetUp() override { set_cpu_devices(8); }
};
const testing::Environment* const kDevices = testing::AddGlobalTestEnvironment(new EightDevices);

}  // namespace
}  // namespace lockstep
