// initialize() of a process that is the only one. tests/processes has those of several.
#include <gtest/gtest.h>

#include "base/throws.h"
#include "lockstep/devices.h"
#include "lockstep/distributed.h"
#include "lockstep/error.h"
#include "lockstep/runtime.h"
#include "support/variable.h"

namespace lockstep {
namespace {

class InitializeAlone : public testing::Test {
 protected:
  Runtime runtime_;
  const RuntimeScope scope_{runtime_};
  const distributed::Options options_{.cluster_detection_method = "none"};
};

TEST_F(InitializeAlone, NeedsNoCoordinator) {
  EXPECT_FALSE(distributed::is_initialized());
  distributed::initialize(options_);
  EXPECT_TRUE(distributed::is_initialized());
  EXPECT_EQ(process_count(), 1);
  EXPECT_EQ(process_index(), 0);
  EXPECT_EQ(distributed::failure_code(), 0);
  distributed::shutdown();
  EXPECT_FALSE(distributed::is_initialized());
}

TEST_F(InitializeAlone, IsCalledOnceAndFirst) {
  distributed::initialize(options_);
  EXPECT_THROWS(distributed::initialize(options_), Error,
                "initialize: it was already called; call it once per process");
  distributed::shutdown();
  EXPECT_GT(device_count(), 0);
  EXPECT_THROWS(distributed::initialize(options_), Error,
                "initialize: devices are already in use; call it before anything that uses devices or computes");
}

TEST_F(InitializeAlone, IsCalledInEachRuntime) {
  distributed::initialize(options_);
  {
    Runtime other;
    const RuntimeScope scope(other);
    EXPECT_FALSE(distributed::is_initialized());
    distributed::initialize(options_);
    EXPECT_TRUE(distributed::is_initialized());
  }
  EXPECT_TRUE(distributed::is_initialized());
  distributed::shutdown();
}

TEST_F(InitializeAlone, WrongVariablesAreErrors) {
  const auto expect_error = [&](const char* variable, const char* value, const char* message) {
    const ScopedVariable scope(variable, value);
    EXPECT_THROWS(distributed::initialize(options_), Error, message);
    EXPECT_FALSE(distributed::is_initialized());
  };
  expect_error("LOCKSTEP_TLS", "maybe", "initialize: LOCKSTEP_TLS is \"maybe\"; set it to on or off");
  expect_error("LOCKSTEP_COLLECTIVES", "udp", "initialize: collectives is \"udp\"; set it to auto, shared, tcp or mpi");
  expect_error("LOCKSTEP_DATA_SECURITY", "tls",
               "initialize: data_security is \"tls\"; set it to auto, encrypted, signed or plain");
  expect_error("LOCKSTEP_HEARTBEAT_TIMEOUT", "soon",
               "initialize: LOCKSTEP_HEARTBEAT_TIMEOUT is \"soon\"; give a positive number of seconds, or unset it");
}

}  // namespace
}  // namespace lockstep
