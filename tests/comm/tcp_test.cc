#include "comm/tcp/tcp.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <latch>
#include <numeric>
#include <thread>

#include "base/throws.h"
#include "comm/conformance.h"
#include "comm/file_store.h"
#include "comm/processes.h"
#include "lockstep/error.h"
#include "support/listener.h"

namespace lockstep {
namespace {

using conformance::FileStore;
using std::chrono::milliseconds;

std::unique_ptr<Comm> join(FileStore& store, int rank, int n, std::chrono::nanoseconds timeout = Comm::kDefaultTimeout,
                           LinkSecurity security = LinkSecurity::plain,
                           detail::Cipher cipher = detail::fastest_cipher()) {
  return tcp_comm({.store = store,
                   .rank = rank,
                   .size = n,
                   .address = "127.0.0.1",
                   .timeout = timeout,
                   .security = security,
                   .cipher = cipher});
}

using Body = std::function<void(Comm&)>;

// Runs every rank on its own thread. Comms live until all ranks have returned.
void on_threads_with(LinkSecurity security, detail::Cipher cipher, int n, const Body& body) {
  FileStore store;
  std::vector<std::unique_ptr<Comm>> comms(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      std::unique_ptr<Comm>& comm = comms[static_cast<size_t>(rank)];
      try {
        comm = join(store, rank, n, Comm::kDefaultTimeout, security, cipher);
        body(*comm);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        if (comm) comm->abort(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
}

void on_threads(int n, const Body& body) { on_threads_with(LinkSecurity::plain, detail::fastest_cipher(), n, body); }

conformance::Backend protected_threads(LinkSecurity security, detail::Cipher cipher) {
  return {fmt::format("tcp, {} with {}", name(security), detail::name(cipher)),
          [=](int n, const Body& body) { on_threads_with(security, cipher, n, body); }};
}

std::vector<conformance::Case> cases(const conformance::Backend& backend, const std::vector<int>& sizes) {
  std::vector<conformance::Case> all;
  for (const auto& checks :
       {conformance::value_checks(), conformance::sequence_checks(), conformance::failure_checks()})
    for (const conformance::Check& check : checks)
      for (const int ranks : sizes)
        if (ranks >= check.min_ranks) all.push_back({backend, check, ranks});
  return all;
}

FileStore& shared_store() {
  static FileStore store;
  return store;
}

template <LinkSecurity security>
std::unique_ptr<Comm> join_by_key(int rank, int n, const std::string& key) {
  return tcp_comm(
      {.store = shared_store(), .prefix = key, .rank = rank, .size = n, .address = "127.0.0.1", .security = security});
}

INSTANTIATE_TEST_SUITE_P(Tcp, CommConformance, testing::ValuesIn(cases({"tcp", on_threads}, {1, 2, 4, 7})),
                         conformance::name_of);
// With processes only the connecting differs, so one size is enough.
INSTANTIATE_TEST_SUITE_P(
    TcpProcesses, CommConformance,
    testing::ValuesIn((shared_store(), cases(conformance::processes("tcp", join_by_key<LinkSecurity::plain>), {3}))),
    conformance::name_of);
INSTANTIATE_TEST_SUITE_P(
    TcpEncrypted, CommConformance,
    testing::ValuesIn(cases(protected_threads(LinkSecurity::encrypted, detail::Cipher::aes_128_gcm), {2, 4, 7})),
    conformance::name_of);
INSTANTIATE_TEST_SUITE_P(
    TcpSigned, CommConformance,
    testing::ValuesIn(cases(protected_threads(LinkSecurity::signature, detail::Cipher::chacha20_poly1305), {3})),
    conformance::name_of);
INSTANTIATE_TEST_SUITE_P(
    TcpEncryptedProcesses, CommConformance,
    testing::ValuesIn((shared_store(),
                       cases(conformance::processes("tcp, encrypted", join_by_key<LinkSecurity::encrypted>), {3}))),
    conformance::name_of);

TEST(TcpComm, SumsHaveTheSameBitsAsInOneProcess) {
  const std::vector<float> terms{0x1p24f, 1, 2, 1, 5, -0x1p24f, 3};
  const float expected = std::accumulate(terms.begin(), terms.end(), 0.0f);
  on_threads(7, [&](Comm& comm) {
    for (const int64_t count : {1, 100000}) {  // small: sent with the agreement; large: sent in pieces
      std::vector<float> values(static_cast<size_t>(count), terms[static_cast<size_t>(comm.rank())]);
      std::vector<BFloat16> halves(values.size(), BFloat16(comm.rank() == 0 ? 1.0f : 0x1p-9f));
      comm.all_reduce(values.data(), values.data(), count, f32, Reduction::sum);
      comm.all_reduce(halves.data(), halves.data(), count, bf16, Reduction::sum);
      EXPECT_EQ(values, std::vector<float>(values.size(), expected));
      EXPECT_EQ(halves.front().bits, BFloat16(1.0f + 6 * 0x1p-9f).bits);
      EXPECT_EQ(halves.back().bits, halves.front().bits);
    }
  });
}

TEST(TcpComm, TimeoutNamesExactlyTheMissingRanks) {
  std::latch started(1);
  on_threads(4, [&](Comm& comm) {
    int32_t value = 0;
    if (comm.rank() == 0) {
      Work work = comm.start_all_reduce(&value, &value, 1, i32, Reduction::sum);
      started.count_down();
      EXPECT_THROWS(work.wait(), CommAborted,
                    "all_reduce 1 on \"world\": rank 0 of 4 stops; first cause: all_reduce 1 on \"world\": rank 2 of 4 "
                    "waited 0.5 s for ranks 1, 3; ");
    } else if (comm.rank() == 2) {
      comm.set_timeout(milliseconds(500));
      started.wait();
      EXPECT_THROWS(comm.all_reduce(&value, &value, 1, i32, Reduction::sum), CommTimeout,
                    "all_reduce 1 on \"world\": rank 2 of 4 waited 0.5 s for ranks 1, 3; check whether they hang or "
                    "have exited, and the network between the hosts; raise the timeout if they are only slow");
    }
  });
}

TEST(TcpComm, WaitingForARankThatLeftFails) {
  FileStore store;
  std::thread other([&] { join(store, 1, 2); });
  const std::unique_ptr<Comm> comm = join(store, 0, 2);
  other.join();
  EXPECT_THROWS(comm->barrier(), CommAborted,
                "barrier 1 on \"world\": rank 0 of 2 stops; first cause: rank 0 lost its connection to rank 1: ");
}

TEST(TcpComm, AbandonedWorkFailsTheGroup) {
  on_threads(2, [](Comm& comm) {
    if (comm.rank() == 1) return;
    comm.set_timeout(milliseconds(50));
    { const Work abandoned = comm.start_barrier(); }
    EXPECT_THROWS(comm.barrier(), CommAborted,
                  "barrier 2 on \"world\": rank 0 of 2 stops; first cause: rank 0: did not wait for its barrier 1");
  });
}

// Runs large operations until one throws, most likely while data is in flight. Returns its message.
std::string run_until_failure(Comm& comm) {
  std::vector<float> values(4 << 20);
  try {
    while (true) comm.all_reduce(values.data(), values.data(), 4 << 20, f32, Reduction::max);
  } catch (const CommError& error) {
    return error.what();
  }
}

TEST(TcpComm, NamesAKilledRankImmediately) {
  FileStore store;
  conformance::Processes processes(3, [&](int rank) {
    const std::unique_ptr<Comm> comm = join(store, rank, 3, std::chrono::seconds(100));
    if (rank == 1) store.set("ready", "");
    const std::string message = run_until_failure(*comm);
    EXPECT_NE(message.find("lost its connection to rank 1: "), std::string::npos) << message;
  });
  store.get("ready", std::chrono::seconds(60));
  processes.signal(1, SIGKILL);
  processes.wait(std::chrono::seconds(60));
}

TEST(TcpComm, TimeoutNamesAStoppedRank) {
  FileStore store;
  conformance::Processes processes(3, [&](int rank) {
    const std::unique_ptr<Comm> comm = join(store, rank, 3);
    comm->barrier();
    comm->set_timeout(milliseconds(500));
    if (rank == 2) store.set("ready", "");
    const std::string message = run_until_failure(*comm);
    EXPECT_NE(message.find("waited 0.5 s for rank 2; "), std::string::npos) << message;
  });
  store.get("ready", std::chrono::seconds(60));
  processes.signal(2, SIGSTOP);
  store.get("tcp/abort", std::chrono::seconds(60));
  processes.signal(2, SIGKILL);
  processes.wait(std::chrono::seconds(60));
}

TEST(TcpComm, ConnectTimeoutNamesTheMissingRank) {
  FileStore store;
  EXPECT_THROWS(join(store, 0, 2, milliseconds(50)), CommTimeout,
                "connecting \"world\": rank 0 of 2 waited 0.05 s for rank 1; check that it is running, and the "
                "network between the hosts: its address must be reachable from this host");
}

TEST(TcpComm, UnknownRanksAndAddressesAreRejected) {
  FileStore store;
  EXPECT_THROWS(join(store, 2, 2), Error, "tcp: rank 2 of 2 does not exist; ranks are 0 to 1");
  EXPECT_THROWS(tcp_comm({.store = store, .interface = "nothing0"}), Error,
                "tcp: no network interface \"nothing0\" with an address on this host; list them with `ip address`");
  EXPECT_THROWS(tcp_comm({.store = store, .address = "192.0.2.1"}), Error,
                "tcp: \"192.0.2.1\" is not an address of this host; give one that the other ranks can reach, or a "
                "network interface");
}

TEST(TcpComm, ListensOnANetworkInterface) {
  FileStore store;
  tcp_comm({.store = store, .interface = "lo"})->barrier();
}

// Three ranks and a group of two of them: every listener chooses a port of the range.
TEST(TcpComm, ListensInTheRangeOfPorts) {
  constexpr PortRange kPorts{.first = 21000, .last = 21999};
  FileStore store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      const auto comm = tcp_comm({.store = store, .rank = rank, .size = 3, .address = "127.0.0.1", .ports = kPorts});
      comm->barrier();
    });
  for (std::thread& thread : threads) thread.join();
  for (const int rank : {0, 1}) {
    const int port = std::stoi(store.get(fmt::format("tcp/address/{}", rank), std::chrono::seconds(1)));
    EXPECT_GE(port, kPorts.first);
    EXPECT_LE(port, kPorts.last);
  }
}

TEST(TcpComm, AFullRangeOfPortsIsNamed) {
  const Listener taken;
  FileStore store;
  EXPECT_THROWS(
      tcp_comm({.store = store, .rank = 0, .size = 2, .address = "127.0.0.1", .ports = {taken.port(), taken.port()}}),
      CommError,
      fmt::format("cannot listen on 127.0.0.1: Address already in use; its ports are {0}-{0} (--data-ports)",
                  taken.port()));
}

TEST(PortRange, IsParsed) {
  const PortRange range = parse_port_range("61000-64999", "x");
  EXPECT_EQ(range.first, 61000);
  EXPECT_EQ(range.last, 64999);
  EXPECT_EQ(parse_port_range("", "x").first, 0);
  for (const char* text : {"7000", "7001-7000", "0-5", "1-65536", "a-b", "1-2-3", "-"})
    EXPECT_THROWS(
        static_cast<void>(parse_port_range(text, "initialize: data_ports")), Error,
        fmt::format("initialize: data_ports is \"{}\"; set it to a range of ports such as 61000-64999", text));
}

}  // namespace
}  // namespace lockstep
