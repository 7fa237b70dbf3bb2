// The conformance suite with the processes that mpirun has started as ranks. All processes run the same tests in the
// same order.
#include "comm/mpi/mpi.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <string>
#include <thread>

#include "base/throws.h"
#include "comm/conformance.h"
#include "comm/mpi/mpi_links.h"
#include "comm/mpi/mpi_session.h"
#include "comm_mpi/calls.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

// The thread level with which this program has initialized MPI itself (`--initialize`); empty: it has not.
std::string initialized_for;

// Runs first: the setting is checked before MPI is initialized.
TEST(MpiStart, RejectsUnknownThreadLevel) {
  if (!initialized_for.empty()) GTEST_SKIP() << "MPI is initialized already";
  const char* const before = std::getenv("LOCKSTEP_MPI_THREADS");
  const std::string kept = before ? before : "multiple";
  setenv("LOCKSTEP_MPI_THREADS", "many", 1);
  EXPECT_THROWS(
      mpi_rank(), Error,
      "environment: LOCKSTEP_MPI_THREADS is \"many\"; set it to multiple, serialized or funneled, or unset it");
  setenv("LOCKSTEP_MPI_THREADS", kept.c_str(), 1);
}

TEST(MpiStart, RejectsAProgramWithSingleThreadedMpi) {
  if (initialized_for != "funneled") GTEST_SKIP() << "only with --initialize funneled";
  EXPECT_THROWS(mpi_rank(), Error,
                "mpi: the program initialized MPI for calls from one thread only; call "
                "MPI_Init_thread with MPI_THREAD_MULTIPLE or MPI_THREAD_SERIALIZED");
}

class MpiConformance : public testing::TestWithParam<conformance::Check> {};

TEST_P(MpiConformance, Holds) {
  const std::unique_ptr<Comm> comm = mpi_comm();
  EXPECT_EQ(comm->size(), mpi_rank().size);
  EXPECT_EQ(comm->rank(), mpi_rank().rank);
  EXPECT_EQ(comm->name(), "world");
  if (comm->size() >= GetParam().min_ranks) GetParam().run(*comm);
}

std::vector<conformance::Check> all_checks() {
  std::vector<conformance::Check> all;
  for (const auto& checks :
       {conformance::value_checks(), conformance::sequence_checks(), conformance::failure_checks()})
    all.insert(all.end(), checks.begin(), checks.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Mpi, MpiConformance, testing::ValuesIn(all_checks()),
                         [](const auto& one) { return std::string(one.param.name); });

// A rank that is connected to all others may fail the group while its messages to other ranks are still in flight.
TEST(MpiLinks, FailureIsIgnoredUntilAllRanksAreConnected) {
  using std::chrono::seconds;
  MpiSession& session = MpiSession::instance();
  if (session.size() < 2) GTEST_SKIP() << "there is only one process";
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  std::vector<int> members(static_cast<size_t>(session.size()));
  std::iota(members.begin(), members.end(), 0);
  MpiLinks links(session, members, session.rank(), "links/test", deadline);
  if (session.rank() == 0) {
    session.set("links/test/abort", "aborted\nfor the test");
    for (int peer = 1; peer < session.size(); ++peer) {
      EXPECT_EQ(session.get(fmt::format("links/test/read/{}", peer), seconds(60)), "yes");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // longer than a wait spins before it checks for keys
      const int one = 1;
      links.wait(links.send(Links::Channel::data, peer, &one, sizeof one, 0), deadline);
    }
  } else {
    EXPECT_EQ(session.get("links/test/abort", seconds(60)), "aborted\nfor the test");
    session.set(fmt::format("links/test/read/{}", session.rank()), "yes");
    int value = 0;
    links.wait(links.receive(Links::Channel::data, 0, &value, sizeof value), deadline);
    EXPECT_EQ(value, 1);
    links.mark_all_connected();
    EXPECT_THROW(links.wait(links.receive(Links::Channel::data, 0, &value, sizeof value), deadline), LinkBroken);
    links.close();
  }
}

// The memory of a receive belongs to the caller again when wait() has thrown, also when the sender is in the middle of
// the message: rank 1 computes for a while after it has begun to send.
TEST(MpiLinks, NothingIsWrittenAfterAFailedWait) {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  MpiSession& session = MpiSession::instance();
  if (session.size() < 2) GTEST_SKIP() << "there is only one process";
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  std::vector<int> members(static_cast<size_t>(session.size()));
  std::iota(members.begin(), members.end(), 0);
  MpiLinks links(session, members, session.rank(), "links/late", deadline);
  std::vector<char> data(session.rank() < 2 ? size_t{32} << 20 : 0, session.rank() == 1 ? 'x' : '.');
  if (session.rank() == 1) {
    const int message = links.send(Links::Channel::data, 0, data.data(), data.size(), 0);
    session.set("links/late/begun", "yes");  // arrives after the beginning of the message
    std::this_thread::sleep_for(milliseconds(500));  // without calls of MPI, which would continue the message
    links.wait(message, deadline);
    session.set("links/late/sent", "yes");
  } else if (session.rank() == 0) {
    EXPECT_EQ(session.get("links/late/begun", seconds(60)), "yes");
    const int message = links.receive(Links::Channel::data, 1, data.data(), data.size());
    EXPECT_THROW(links.wait(message, std::chrono::steady_clock::now() + milliseconds(50)), LinkTimeout);
    const std::vector<char> after = data;
    EXPECT_EQ(session.get("links/late/sent", seconds(60)), "yes");
    EXPECT_EQ(data, after);
  } else {
    EXPECT_EQ(session.get("links/late/sent", seconds(60)), "yes");
  }
}

// Sums are in rank order and rounded once, as in one process.
TEST(MpiComm, SumsHaveTheSameBitsAsInOneProcess) {
  const std::unique_ptr<Comm> comm = mpi_comm();
  float value = comm->rank() == 0 ? 0x1p24f : 1.0f, expected = 0x1p24f;
  BFloat16 half(comm->rank() == 0 ? 1.0f : 0x1p-9f);
  for (int rank = 1; rank < comm->size(); ++rank) expected += 1.0f;
  comm->all_reduce(&value, &value, 1, f32, Reduction::sum);
  comm->all_reduce(&half, &half, 1, bf16, Reduction::sum);
  EXPECT_EQ(value, expected);
  EXPECT_EQ(half.bits, BFloat16(1.0f + static_cast<float>(comm->size() - 1) * 0x1p-9f).bits);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc == 3 && std::string(argv[1]) == "--initialize") {
    lockstep::initialized_for = argv[2];
    int provided = 0;
    MPI_Init_thread(&argc, &argv, lockstep::initialized_for == "funneled" ? MPI_THREAD_FUNNELED : MPI_THREAD_SERIALIZED,
                    &provided);
  }
  int result = RUN_ALL_TESTS();
  lockstep::mpi_finalize();
  // With MPI_THREAD_FUNNELED all calls must come from one thread.
  const char* const threads = std::getenv("LOCKSTEP_MPI_THREADS");
  const lockstep::MpiCalls calls = lockstep::mpi_calls();
  if (threads && std::string(threads) == "funneled" && (calls.all == 0 || calls.from_other_threads > 0)) {
    std::cerr << calls.from_other_threads << " of " << calls.all
              << " MPI calls came from threads other than the one that initialized MPI\n";
    result = 1;
  }
  if (!lockstep::initialized_for.empty()) MPI_Finalize();
  return result;
}
