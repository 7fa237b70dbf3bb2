// The exit codes that request a restart.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cluster/detect.h"
#include "lockstep/distributed.h"
#include "lockstep/error.h"
#include "support/variable.h"

namespace lockstep {
namespace {

// The variables that the controller of a JAXJob sets, except one.
std::vector<std::unique_ptr<ScopedVariable>> replica_without(const std::string& not_started) {
  std::vector<std::unique_ptr<ScopedVariable>> out;
  for (const std::string name : detail::kJaxjobVariables)
    out.push_back(std::make_unique<ScopedVariable>(name, std::string(name == not_started ? "" : "1")));
  return out;
}

TEST(ExitCode, RetryCodeMatchesTheController) {
  for (const char* not_started : detail::kJaxjobVariables) {
    const auto variables = replica_without(not_started);
    EXPECT_EQ(distributed::retry_code(), 75) << not_started;
  }
  const auto variables = replica_without("none");
  EXPECT_EQ(distributed::retry_code(), 138);
}

TEST(ExitCode, ReflectsWhetherARestartMayHelp) {
  EXPECT_EQ(distributed::report_failure(CommAborted("process 1 was lost")), 75);
  EXPECT_EQ(distributed::report_failure(CommTimeout("processes are missing")), 75);
  EXPECT_EQ(distributed::report_failure(DeviceLost("GPU 0")), 75);
  EXPECT_EQ(distributed::report_failure(Error("a wrong setting")), 1);
  EXPECT_EQ(distributed::report_failure(IoError("a full disk")), 1);
  EXPECT_EQ(distributed::report_failure(std::runtime_error("what is this")), 1);
  {
    // Processes that have not come are no failure of this process; its GPU is.
    const ScopedVariable first("LOCKSTEP_FIRST_CAUSE_CODE", "74");
    EXPECT_EQ(distributed::report_failure(CommTimeout("processes are missing")), 75);
    EXPECT_EQ(distributed::report_failure(DeviceLost("GPU 0")), 74);
  }
  const auto variables = replica_without("none");
  EXPECT_EQ(distributed::report_failure(CommAborted("process 1 was lost")), 138);
  EXPECT_EQ(distributed::report_failure(Error("a wrong setting")), 1);
}

}  // namespace
}  // namespace lockstep
