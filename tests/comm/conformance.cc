#include "comm/conformance.h"

#include <atomic>

namespace lockstep {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommConformance);

TEST_P(CommConformance, Holds) {
  const auto& [backend, check, ranks] = GetParam();
  std::atomic<int> calls = 0;
  backend.run(ranks, [&, run = check.run, n = ranks](Comm& comm) {
    EXPECT_EQ(comm.size(), n);
    EXPECT_EQ(comm.name(), "world");
    run(comm);
    ++calls;
  });
  EXPECT_EQ(calls, ranks);
}

}  // namespace lockstep
