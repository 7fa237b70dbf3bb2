// Arrays over several processes, and functions that combine host values. programs/values.cc does the checks.
#include "processes/launched.h"

#ifdef LOCKSTEP_WITH_GRPC

namespace lockstep {
namespace {

void expect_fine(const std::string& part, int processes, const Words& flags = {}) {
  SCOPED_TRACE(fmt::format("{} of {} processes", part, processes));
  const RunningProgram::Result result = launch(Words{"-n", std::to_string(processes)} + flags,
                                               {std::string(LOCKSTEP_BINARY_DIR) + "/tests/process_values", part});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (int p = 0; p < processes; ++p) expect_contains(result.out, fmt::format("[{}] fine\n", p));
}

TEST(HostValues, AreCombined) {
  for (const int processes : {2, 3}) expect_fine("helpers", processes);
}

TEST(DistributedArray, IsMadeOfProcessLocalData) {
  expect_fine("pieces", 2);
  expect_fine("pieces", 3, {"--devices", "2"});
  expect_fine("pieces", 2, {"--devices", "4", "--cpu-lanes", "2"});
}

TEST(HostValues, SynchronizeOnlyUnderOneName) { expect_fine("names", 2); }

}  // namespace
}  // namespace lockstep

#endif
