// SharedMemoryComm: the conformance suite with processes and with threads as ranks, and further promises of this
// backend.
#include "comm/shared/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <random>

#include "base/os/shared_descriptor.h"
#include "base/throws.h"
#include "comm/conformance.h"
#include "comm/shared_memory_ranks.h"
#include "lane/pool.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using conformance::join_shared;
using conformance::on_shared_threads;
using conformance::unique_key;
using std::chrono::milliseconds;

INSTANTIATE_TEST_SUITE_P(SharedMemory, CommConformance,
                         conformance::cases(conformance::processes("shared memory, processes",
                                                                   [](int rank, int n, const std::string& key) {
                                                                     return join_shared(rank, n, key);
                                                                   })),
                         conformance::name_of);
INSTANTIATE_TEST_SUITE_P(SharedMemoryOnThreads, CommConformance,
                         conformance::cases({"shared memory, threads",
                                             [](int n, const std::function<void(Comm&)>& body) {
                                               on_shared_threads(n, body);
                                             }}),
                         conformance::name_of);

// Every operation takes many rounds, so that slots are reused.
TEST(SharedMemoryComm, SmallSlotsGiveTheSameResults) {
  for (const int n : {2, 3, 5}) {
    on_shared_threads(
        n,
        [](Comm& comm) {
          for (const conformance::Check& check : conformance::value_checks()) check.run(comm);
          for (const conformance::Check& check : conformance::sequence_checks()) check.run(comm);
        },
        1);
  }
}

TEST(SharedMemoryComm, SixtyFourRanksWorkOnFewCpus) {
  conformance::processes("", [](int rank, int n, const std::string& key) {
    return join_shared(rank, n, key);
  }).run(64, [](Comm& comm) {
    for (int64_t i = 0; i < 3; ++i) {
      comm.barrier();
      std::vector<int64_t> values(5000, comm.rank() + i);
      comm.all_reduce(values.data(), values.data(), 5000, i64, Reduction::sum);
      EXPECT_EQ(values, std::vector<int64_t>(5000, 64 * 63 / 2 + 64 * i));
    }
  });
}

TEST(SharedMemoryComm, SumsAreInRankOrder) {
  // 2^24 + 1 + 2 + ... - 2^24 in f32: the result depends on the order of the terms. For small and for large sums.
  const std::vector<float> terms{0x1p24f, 1, 2, 1, 5, -0x1p24f, 3};
  const float expected = std::accumulate(terms.begin(), terms.end(), 0.0f);
  on_shared_threads(7, [&](Comm& comm) {
    for (const int64_t count : {1, 100000}) {
      std::vector<float> values(static_cast<size_t>(count), terms[static_cast<size_t>(comm.rank())]);
      comm.all_reduce(values.data(), values.data(), count, f32, Reduction::sum);
      EXPECT_EQ(values, std::vector<float>(values.size(), expected));
    }
  });
}

TEST(SharedMemoryComm, HalfPrecisionSumsAreRoundedOnce) {
  // 1 plus 7 small terms, each of which would be lost if sums were rounded after every term.
  on_shared_threads(8, [](Comm& comm) {
    for (const int64_t count : {1, 100000}) {
      std::vector<BFloat16> values(static_cast<size_t>(count), BFloat16(comm.rank() == 0 ? 1.0f : 0x1p-9f));
      comm.all_reduce(values.data(), values.data(), count, bf16, Reduction::sum);
      EXPECT_EQ(values.back().bits, BFloat16(1.0f + 7 * 0x1p-9f).bits);
    }
  });
}

// Every large operation, with `pool` or without (null), in and out of place. Returns all results.
std::vector<float> large_operations(Comm& comm, Pool* pool) {
  const auto n = static_cast<int64_t>(comm.size());
  std::mt19937 random(static_cast<unsigned>(comm.rank()));
  const auto numbers = [&](int64_t count) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = std::normal_distribution<float>()(random);
    return out;
  };
  std::vector<float> all;
  const auto keep = [&](const std::vector<float>& result) { all.insert(all.end(), result.begin(), result.end()); };
  std::vector<int64_t> counts(static_cast<size_t>(n));
  for (size_t r = 0; r < counts.size(); ++r) counts[r] = 70001 + 100 * static_cast<int64_t>(r);
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const int64_t own = counts[static_cast<size_t>(comm.rank())];
  for (const bool in_place : {false, true}) {
    const auto in = numbers(total);
    std::vector<float> sum = in, scattered(static_cast<size_t>(own)), gathered(in.size());
    comm.start_all_reduce(in_place ? sum.data() : in.data(), sum.data(), total, f32, Reduction::sum).wait(pool);
    keep(sum);
    comm.start_reduce_scatter(in.data(), scattered.data(), counts, f32, Reduction::max).wait(pool);
    keep(scattered);
    comm.start_all_gather(scattered.data(), gathered.data(), counts, f32).wait(pool);
    keep(gathered);
  }
  const std::vector<int64_t> each(counts.size(), 50003);
  const auto sent = numbers(50003 * n);
  std::vector<float> received(sent.size()), passed(sent.size());
  comm.start_all_to_all(sent.data(), received.data(), each, each, f32).wait(pool);
  keep(received);
  const std::vector<Route> routes{{.source = 0, .destination = comm.size() - 1}};
  comm.start_permute(sent.data(), passed.data(), 50003 * n, f32, routes).wait(pool);
  keep(passed);
  comm.start_broadcast(passed.data(), 50003 * n, f32, comm.size() - 1).wait(pool);
  keep(passed);
  return all;
}

TEST(SharedMemoryComm, PoolsGiveTheSameBits) {
  for (const int n : {1, 2, 3, 5})
    for (const int64_t bytes : {0, 4 << 20})
      on_shared_threads(
          n,
          [](Comm& comm) {
            Pool pool({.threads = 3});
            const std::vector<float> alone = large_operations(comm, nullptr), together = large_operations(comm, &pool);
            ASSERT_EQ(alone.size(), together.size());
            EXPECT_EQ(std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)), 0);
            // A rank without a pool among ranks with one.
            const std::vector<float> mixed = large_operations(comm, comm.rank() == 0 ? nullptr : &pool);
            EXPECT_EQ(std::memcmp(alone.data(), mixed.data(), alone.size() * sizeof(float)), 0);
          },
          bytes);
}

TEST(SharedMemoryComm, PoolsPassTheChecks) {
  for (const int n : {2, 3})
    on_shared_threads(n, [](Comm& comm) {
      Pool pool({.threads = 2});
      const PoolOfComm help(comm, pool);
      for (const conformance::Check& check : conformance::value_checks()) check.run(comm);
      for (const conformance::Check& check : conformance::sequence_checks()) check.run(comm);
    });
}

// Rank 0 waits; rank 1 starts the operation and does not wait until rank 0 has its result.
TEST(SharedMemoryComm, LargeOperationsProgressWhileARankComputes) {
  std::atomic<bool> got = false;
  on_shared_threads(2, [&](Comm& comm) {
    constexpr int64_t kCount = 1 << 20;
    std::vector<int32_t> values(kCount, comm.rank() + 1);
    Work work = comm.start_all_reduce(values.data(), values.data(), kCount, i32, Reduction::sum);
    if (comm.rank() == 0) {
      work.wait();
      got = true;
      got.notify_all();
    } else {
      got.wait(false);
      work.wait();
    }
    EXPECT_EQ(values, std::vector<int32_t>(kCount, 3));
  });
}

// Both ranks start far more operations than the slots can hold, and only one waits.
TEST(SharedMemoryComm, ManySmallOperationsProgressWhileARankComputes) {
  std::atomic<bool> got = false;
  on_shared_threads(2, [&](Comm& comm) {
    std::vector<int32_t> values(200, comm.rank() + 1);
    std::vector<Work> works;
    for (int32_t& value : values) works.push_back(comm.start_all_reduce(&value, &value, 1, i32, Reduction::sum));
    if (comm.rank() == 1) got.wait(false);
    for (Work& work : works) work.wait();
    if (comm.rank() == 0) {
      got = true;
      got.notify_all();
    }
    EXPECT_EQ(values, std::vector<int32_t>(200, 3));
  });
}

TEST(SharedMemoryComm, RanksMayWaitForGroupsInOppositeOrders) {
  on_shared_threads(2, [](Comm& comm) {
    constexpr int64_t kCount = 1 << 20;
    const std::unique_ptr<Comm> a = comm.split({0, 1}, "a"), b = comm.split({0, 1}, "b");
    std::vector<int32_t> first(kCount, comm.rank()), second(kCount, comm.rank() + 1);
    Work of_a = a->start_all_reduce(first.data(), first.data(), kCount, i32, Reduction::sum);
    Work of_b = b->start_all_reduce(second.data(), second.data(), kCount, i32, Reduction::sum);
    if (comm.rank() == 0) of_a.wait();
    of_b.wait();
    of_a.wait();
    EXPECT_EQ(first, std::vector<int32_t>(kCount, 1));
    EXPECT_EQ(second, std::vector<int32_t>(kCount, 3));
  });
}

TEST(SharedMemoryComm, OperationStartedByAllCompletesAfterAbort) {
  std::atomic<int> started = 0;
  on_shared_threads(2, [&](Comm& comm) {
    std::vector<int32_t> large(300000, 1), small(1, 1);
    Work first = comm.start_all_reduce(large.data(), large.data(), 300000, i32, Reduction::sum);
    Work second = comm.start_all_reduce(small.data(), small.data(), 1, i32, Reduction::sum);
    ++started;
    while (started < 2) std::this_thread::yield();
    comm.abort("enough");
    second.wait();
    first.wait();
    EXPECT_EQ(large, std::vector<int32_t>(300000, 2));
    EXPECT_EQ(small[0], 2);
    EXPECT_THROWS(comm.barrier(), CommAborted, "barrier 3 on \"world\": rank ");
    EXPECT_THROWS(comm.barrier(), CommAborted, ": enough");
  });
}

TEST(SharedMemoryComm, AbandonedWorkFailsTheGroupUnlessAllHaveStarted) {
  std::atomic<int> started = 0;
  std::atomic<bool> abandoned_by_1 = false;
  on_shared_threads(2, [&](Comm& comm) {
    std::vector<int32_t> values(50000, comm.rank() + 1);
    {
      const Work work = comm.start_all_reduce(values.data(), values.data(), 50000, i32, Reduction::sum);
      ++started;
      while (started < 2) std::this_thread::yield();
    }
    EXPECT_EQ(values,
              std::vector<int32_t>(50000, 3));  // completed, because the memory may be freed after the destructor
    if (comm.rank() == 1) {
      { const Work abandoned = comm.start_barrier(); }
      abandoned_by_1 = true;
      abandoned_by_1.notify_all();
    } else {
      abandoned_by_1.wait(false);
      EXPECT_THROWS(comm.barrier(), CommAborted,
                    "barrier 2 on \"world\": rank 0 of 2 stops; first cause: rank 1 did not wait for its barrier 2");
    }
  });
}

TEST(SharedMemoryComm, WaitingForARankThatLeftFails) {
  const std::string key = unique_key();
  std::thread other([&] { join_shared(1, 2, key)->barrier(); });
  const std::unique_ptr<Comm> comm = join_shared(0, 2, key);
  comm->barrier();
  EXPECT_THROWS(comm->barrier(), CommAborted,
                "barrier 2 on \"world\": rank 0 of 2 stops; first cause: rank 1 has left the group");
  other.join();
}

TEST(SharedMemoryComm, TimeoutNamesOperationGroupAndMissingRanks) {
  on_shared_threads(3, [](Comm& comm) {
    if (comm.rank() != 0) return;
    comm.set_timeout(milliseconds(20));
    EXPECT_THROWS(
        comm.barrier(), CommTimeout,
        "barrier 1 on \"world\": rank 0 of 3 waited 0.02 s for ranks 1, 2; check whether they hang or have exited, or "
        "raise the timeout if they are only slow");
  });
}

TEST(SharedMemoryComm, InvalidOptionsAreRejected) {
  const std::shared_ptr<detail::Segment> memory = create_shared_memory(2);
  EXPECT_THROWS(shared_memory_comm({.memory = memory, .rank = 2, .size = 2}), Error,
                "shared_memory_comm: rank 2 of 2 does not exist; ranks are 0 to size - 1");
  EXPECT_THROWS(shared_memory_comm({.memory = nullptr, .rank = 0, .size = 2}), Error,
                "shared_memory_comm: the memory of 2 ranks is missing; create it in the process of rank 0 and open it");
  EXPECT_THROWS(shared_memory_comm({.memory = memory, .rank = 0, .size = 2, .timeout = milliseconds(-1000)}), Error,
                "shared_memory_comm: invalid timeout of -1 s; the timeout must be positive");
  EXPECT_THROWS(create_shared_memory(0), Error, "create_shared_memory: invalid memory for 0 ranks with 0 bytes each");
  EXPECT_THROWS(create_shared_memory(2, -1), Error, "for 2 ranks with -1 bytes each; give at least 1 rank and 0 bytes");
}

TEST(SharedMemoryComm, AddressesThatAreNoneAreRejected) {
  for (const char* const text :
       {"", "12", "12:3", "12:3:", "a:b:c", "-1:3:pipe:[5]", "0:3:pipe:[5]", "99999999999:3:x"})
    EXPECT_THROWS(open_shared_memory(text), Error, "shared memory: \"world\" has no address \"");
  // A file of this process, but not shared memory; its size could change.
  const Pipe pipe = make_pipe();
  EXPECT_THROWS(open_shared_memory(to_text(address_of(pipe.reader))), Error, "which is not a segment");
  const Descriptor unsealed(memfd_create("lockstep-test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), 1 << 20), 0);
  EXPECT_THROWS(open_shared_memory(to_text(address_of(unsealed))), Error, "which is not a segment");
}

TEST(SharedMemoryComm, MemoryThatIsGoneIsNotOpened) {
  std::string address;
  {
    const std::shared_ptr<detail::Segment> memory = create_shared_memory(2);
    address = address_of(*memory);
    EXPECT_NE(open_shared_memory(address), nullptr);
  }
  EXPECT_THROWS(open_shared_memory(address), IoError, "shared memory: \"world\" is not in process ");
  // The same number stands for another file now.
  const std::shared_ptr<detail::Segment> other = create_shared_memory(2);
  ASSERT_EQ(address.substr(0, address.rfind(':')), address_of(*other).substr(0, address_of(*other).rfind(':')));
  EXPECT_THROWS(open_shared_memory(address), IoError, "any more, or that process is in another container");
}

}  // namespace
}  // namespace lockstep
