// The readiness probe of the pods: `lockstep doctor --ready`.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "support/listener.h"
#include "support/program.h"

namespace lockstep {
namespace {

RunningProgram::Result ask(const std::string& coordinator) {
  return RunningProgram({"/usr/bin/env", "LOCKSTEP_COORDINATOR=" + coordinator, "LOCKSTEP_NUM_PROCESSES=2",
                         "LOCKSTEP_PROCESS_ID=1", program_path(), "doctor", "--ready"})
      .wait();
}

TEST(Ready, IfTheCoordinatorIsReachable) {
  std::optional<Listener> listener(std::in_place);
  const std::string coordinator = "127.0.0.1:" + std::to_string(listener->port());
  const auto there = ask(coordinator);
  EXPECT_EQ(there.exit_code, 0) << there.err;
  EXPECT_EQ(there.out, "ready: the coordinator " + coordinator + " is reachable\n");
  listener.reset();
  const auto gone = ask(coordinator);
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_EQ(gone.out.substr(0, gone.out.rfind(": ")),
            "not ready: the coordinator " + coordinator + " is not reachable");
}

TEST(Ready, ASingleProcessIsAlwaysReady) {
  const auto alone =
      RunningProgram({"/usr/bin/env", "LOCKSTEP_NUM_PROCESSES=1", program_path(), "doctor", "--ready"}).wait();
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_EQ(alone.out, "ready: no coordinator is needed\n");
}

}  // namespace
}  // namespace lockstep
