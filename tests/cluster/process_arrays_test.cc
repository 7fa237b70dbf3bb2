// broadcast_one_to_all, process_allgather and assert_equal, with another process played by a thread.
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "base/throws.h"
#include "lane/lane.h"
#include "lockstep/create.h"
#include "lockstep/distributed.h"
#include "lockstep/error.h"
#include "support/one_of_processes.h"

namespace lockstep {
namespace {

// Process 1 of 2: calls f with the group of the processes, on a thread. The group fails when this object is destroyed.
class ProcessOne {
 public:
  template <class F>
  ProcessOne(const OneOfProcesses& job, F f)
      : world_(*job.others()[0]), thread_([this, f] {
          try {
            const auto lanes = static_cast<int>(local_lane_count());
            if (lanes == 1) return f(world_);
            f(*world_.split({0, lanes}, "processes"));
          } catch (const CommAborted&) {
          }
        }) {}
  ~ProcessOne() {
    world_.abort("the test is over");
    thread_.join();
  }
  ProcessOne(const ProcessOne&) = delete;
  ProcessOne& operator=(const ProcessOne&) = delete;

 private:
  Comm& world_;
  std::thread thread_;
};

TEST(ProcessArrays, ASingleProcessNeedsNoOther) {
  const Array x = array({1.f, 2.f});
  EXPECT_EQ(distributed::broadcast_one_to_all(x).node(), x.node());
  distributed::assert_equal(x);
}

TEST(ProcessArrays, ProcessZeroBroadcastsItsValue) {
  const OneOfProcesses job(0, 2, 1);
  std::array<float, 2> received{};
  {
    const ProcessOne other(job, [&](Comm& comm) { comm.broadcast(received.data(), 2, f32, 0); });
    const Array mine = distributed::broadcast_one_to_all(array({1.f, 2.f}));
    EXPECT_EQ(mine.to_vector<float>(), (std::vector<float>{1, 2}));
  }
  EXPECT_EQ(received, (std::array<float, 2>{1, 2}));
}

TEST(ProcessArrays, GatheredValuesAreStackedOrConcatenated) {
  for (const bool tiled : {false, true}) {
    const OneOfProcesses job(0, 2, 1);
    const ProcessOne other(job, [](Comm& comm) {
      const std::array<float, 3> own{4, 5, 6};
      std::array<float, 6> all{};
      comm.all_gather(own.data(), all.data(), std::array<int64_t, 2>{3, 3}, f32);
    });
    const Array all = distributed::process_allgather(array({1.f, 2.f, 3.f}), tiled);
    EXPECT_EQ(all.shape(), tiled ? Shape{6} : (Shape{2, 3}));
    EXPECT_EQ(all.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  }
  EXPECT_THROWS(distributed::process_allgather(zeros({}), true), Error, "cannot concatenate scalars");
}

// The first time process 1 has another hash than process 0, the second time the same.
TEST(ProcessArrays, AssertEqualComparesWithProcessZero) {
  const OneOfProcesses job(0, 2, 1);
  const ProcessOne other(job, [](Comm& comm) {
    std::array<int64_t, 2> hashes{};
    const std::array<int64_t, 2> counts{1, 1};
    int64_t own = 0;
    comm.all_gather(&own, hashes.data(), counts, i64);
    own = hashes[0];
    comm.all_gather(&own, hashes.data(), counts, i64);
  });
  const Array x = array({1.f, 2.f});
  EXPECT_THROWS(distributed::assert_equal(x, "seed"), Error, "assert_equal: seed of process 1 differs");
  distributed::assert_equal(x, "seed");
}

}  // namespace
}  // namespace lockstep
