#include "comm/in_process.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "base/throws.h"
#include "comm/conformance.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using Comms = std::vector<std::unique_ptr<Comm>>;
using std::chrono::milliseconds;

// Runs every rank on its own thread.
void run_on_threads(const Comms& comms, const std::function<void(Comm&)>& body) {
  std::vector<std::thread> threads;
  for (const auto& comm : comms)
    threads.emplace_back([&body, &comm] {
      try {
        body(*comm);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << comm->rank() << ": " << error.what();
        comm->abort(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
}

void run(int n, const std::function<void(Comm&)>& body) { run_on_threads(in_process_comms(n), body); }

INSTANTIATE_TEST_SUITE_P(InProcess, CommConformance, conformance::cases({"in process", run}), conformance::name_of);

TEST(InProcessComm, NoRankPassesABarrierBeforeTheLastStarts) {
  std::atomic<int> started = 0;
  run(4, [&](Comm& comm) {
    for (int round = 1; round <= 50; ++round) {
      ++started;
      comm.barrier();
      EXPECT_GE(started, 4 * round);
      comm.barrier();
    }
  });
}

TEST(InProcessComm, SumsAreInRankOrder) {
  // 2^24 + 1 + 2 + ... - 2^24 in f32: the result depends on the order of the terms.
  const std::vector<float> terms{0x1p24f, 1, 2, 1, 5, -0x1p24f, 3};
  const float expected = std::accumulate(terms.begin(), terms.end(), 0.0f);
  run(7, [&](Comm& comm) {
    for (int round = 0; round < 20; ++round) {
      float value = terms[static_cast<size_t>(comm.rank())];
      comm.all_reduce(&value, &value, 1, f32, Reduction::sum);
      EXPECT_EQ(value, expected);
    }
  });
}

TEST(InProcessComm, HalfPrecisionSumsAreRoundedOnce) {
  // 1 plus 7 small terms, each of which would be lost if sums were rounded after every term.
  run(8, [](Comm& comm) {
    BFloat16 b(comm.rank() == 0 ? 1.0f : 0x1p-9f);
    Float16 h(comm.rank() == 0 ? 1.0f : 0x1p-12f);
    comm.all_reduce(&b, &b, 1, bf16, Reduction::sum);
    comm.all_reduce(&h, &h, 1, f16, Reduction::sum);
    EXPECT_EQ(b.bits, BFloat16(1.0f + 7 * 0x1p-9f).bits);
    EXPECT_EQ(h.bits, Float16(1.0f + 7 * 0x1p-12f).bits);
    EXPECT_GT(static_cast<float>(b), 1.0f);
    EXPECT_GT(static_cast<float>(h), 1.0f);
  });
}

TEST(InProcessComm, OneRankCompletesAnOperationThatAllHaveStarted) {
  Comms comms = in_process_comms(2);
  std::vector<float> a(100000, 1.0f), b(100000, 2.0f);
  Work first = comms[0]->start_all_reduce(a.data(), a.data(), 100000, f32, Reduction::sum);
  Work second = comms[1]->start_all_reduce(b.data(), b.data(), 100000, f32, Reduction::sum);
  first.wait();
  EXPECT_EQ(a, std::vector<float>(100000, 3.0f));
  EXPECT_EQ(b, a);
  second.wait();
}

TEST(InProcessComm, TimeoutNamesOperationGroupAndMissingRanks) {
  Comms comms = in_process_comms(4, "data");
  comms[2]->set_timeout(milliseconds(20));
  int32_t value = 0;
  Work here = comms[0]->start_all_reduce(&value, &value, 1, i32, Reduction::sum);
  EXPECT_THROWS(
      comms[2]->all_reduce(&value, &value, 1, i32, Reduction::sum), CommTimeout,
      "all_reduce 1 on \"data\": rank 2 of 4 waited 0.02 s for ranks 1, 3; check whether they hang or have exited, or "
      "raise the timeout if they are only slow");
  // The other ranks fail too, whether they already wait or start later.
  EXPECT_THROWS(
      here.wait(), CommAborted,
      "all_reduce 1 on \"data\": rank 0 of 4 stops; first cause: all_reduce 1 on \"data\": rank 2 of 4 waited");
  EXPECT_THROWS(comms[1]->barrier(), CommAborted,
                "barrier 1 on \"data\": rank 1 of 4 stops; first cause: all_reduce 1");
}

TEST(InProcessComm, TimeoutInSubgroupAlsoNamesOriginRanks) {
  Comms comms = in_process_comms(3);
  std::unique_ptr<Comm> one, other;
  std::thread thread([&] { other = comms[1]->split({2, 1}, "rows"); });
  one = comms[2]->split({2, 1}, "rows");
  thread.join();
  one->set_timeout(milliseconds(20));
  EXPECT_THROWS(one->barrier(), CommTimeout,
                "barrier 1 on \"rows\": rank 0 (2 of \"world\") of 2 waited 0.02 s for rank 1 (1 of \"world\"); ");
}

TEST(InProcessComm, OperationStartedByAllCompletesAfterAbort) {
  Comms comms = in_process_comms(2);
  std::vector<int32_t> a(50000, 1), b(50000, 2);
  Work first = comms[0]->start_all_reduce(a.data(), a.data(), 50000, i32, Reduction::sum);
  Work second = comms[1]->start_all_reduce(b.data(), b.data(), 50000, i32, Reduction::sum);
  comms[0]->abort("enough");
  first.wait();
  second.wait();
  EXPECT_EQ(a[49999], 3);
  EXPECT_THROWS(comms[1]->barrier(), CommAborted, "rank 1 of 2 stops; first cause: rank 0: enough");
}

TEST(InProcessComm, AbandonedWorkFailsTheGroupUnlessAllHaveStarted) {
  Comms comms = in_process_comms(2);
  std::vector<int32_t> a(50000, 1), b(50000, 2);
  {
    const Work first = comms[0]->start_all_reduce(a.data(), a.data(), 50000, i32, Reduction::sum);
    const Work second = comms[1]->start_all_reduce(b.data(), b.data(), 50000, i32, Reduction::sum);
  }
  EXPECT_EQ(a[0], 3);  // completed, because the memory may be freed after the destructor
  { const Work abandoned = comms[1]->start_barrier(); }
  EXPECT_THROWS(comms[0]->barrier(), CommAborted,
                "barrier 2 on \"world\": rank 0 of 2 stops; first cause: rank 1 did not wait for its barrier 2");
}

TEST(InProcessComm, WaitingForARankThatLeftFails) {
  Comms comms = in_process_comms(3);
  Work waiting = comms[0]->start_barrier();
  comms[1].reset();
  EXPECT_THROWS(waiting.wait(), CommAborted, "first cause: rank 1 has left the group");
  EXPECT_THROWS(comms[2]->barrier(), CommAborted, "first cause: rank 1 has left the group");

  Comms later = in_process_comms(2);
  later[1].reset();
  EXPECT_THROWS(later[0]->barrier(), CommAborted, "barrier 1 on \"world\": rank 0 of 2 stops; first cause: rank 1 has");
}

TEST(InProcessComm, LongOutstandingOperationDoesNotBlockOthers) {
  Comms comms = in_process_comms(2);
  int64_t early[2] = {1, 2};
  Work works[2];
  for (size_t r : {0, 1}) works[r] = comms[r]->start_all_reduce(&early[r], &early[r], 1, i64, Reduction::sum);
  for (int64_t i = 0; i < 1000; ++i) {
    int64_t values[2] = {i, 1};
    Work first = comms[0]->start_all_reduce(&values[0], &values[0], 1, i64, Reduction::sum);
    comms[1]->all_reduce(&values[1], &values[1], 1, i64, Reduction::sum);
    first.wait();
    ASSERT_EQ(values[0], i + 1);
    ASSERT_EQ(values[1], i + 1);
  }
  for (Work& work : works) work.wait();
  EXPECT_EQ(early[0], 3);
}

TEST(InProcessComm, WorkIsMovable) {
  Comms comms = in_process_comms(1);
  Work a = comms[0]->start_barrier();
  Work b = std::move(a);
  EXPECT_TRUE(b);
  a = comms[0]->start_barrier();
  a = std::move(b);  // the assignment completes the second barrier
  a.wait();
  EXPECT_FALSE(a);
  comms[0]->barrier();
}

TEST(InProcessComm, RejectsGroupWithoutRanks) {
  EXPECT_THROWS(in_process_comms(0), Error, "in_process_comms: 0 ranks were requested; a group needs at least 1");
}

}  // namespace
}  // namespace lockstep
