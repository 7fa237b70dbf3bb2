// A network between two ranks that drops everything and closes no connection.
#include <gtest/gtest.h>

#include <future>

#include "comm/file_store.h"
#include "comm/man_in_the_middle.h"
#include "comm/tcp/tcp.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using conformance::FileStore;
using std::chrono::seconds;

// The error of a rank that broadcasts from rank 1 and then meets the other one in a barrier.
std::string broadcast_and_meet(KeyStore& store, int rank, seconds timeout) {
  try {
    const auto comm = tcp_comm({.store = store, .rank = rank, .size = 2, .address = "127.0.0.1"});
    comm->set_timeout(timeout);
    std::vector<float> values(1 << 18, 1.0f);
    comm->broadcast(values.data(), 1 << 18, f32, 1);
    comm->barrier();
    return "none";
  } catch (const CommError& error) {
    return error.what();
  }
}

// Rank 1 has sent its data, and waits in the barrier. Rank 0 waits for the data, and learns only from the key store that
// rank 1 has given up.
TEST(TcpNetwork, ARankThatWaitsForLostDataIsNotMissing) {
  FileStore store;
  ManInTheMiddle middle({.bytes = 1000, .change = [](const std::string&) { return std::string(); }, .mute = true});
  DivertedStore diverted(store, middle);
  auto other = std::async(std::launch::async, [&] { return broadcast_and_meet(diverted, 1, seconds(4)); });
  const std::string first = broadcast_and_meet(store, 0, seconds(8)), second = other.get();
  const std::string cause =
      "barrier 2 on \"world\": rank 1 of 2 waited 4 s for data of the other ranks, which wait for data themselves; "
      "check the network between the hosts";
  EXPECT_EQ(second, cause);
  EXPECT_EQ(first, "broadcast 1 on \"world\": rank 0 of 2 stops; first cause: " + cause);
}

}  // namespace
}  // namespace lockstep
