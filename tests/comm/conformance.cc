#include "comm/conformance.h"

#include <sys/mman.h>

#include <atomic>
#include <new>

namespace lockstep {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommConformance);

TEST_P(CommConformance, Holds) {
  const auto& [backend, check, ranks] = GetParam();
  // In shared memory, because ranks may be forked processes.
  void* memory = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& calls = *new (memory) std::atomic<int>(0);
  backend.run(ranks, [&, run = check.run, n = ranks](Comm& comm) {
    EXPECT_EQ(comm.size(), n);
    EXPECT_EQ(comm.name(), "world");
    run(comm);
    ++calls;
  });
  if (!IsSkipped()) {
    EXPECT_EQ(calls, ranks);
  }
  munmap(memory, sizeof(std::atomic<int>));
}

}  // namespace lockstep
