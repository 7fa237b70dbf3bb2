// The addresses that process 0 listens on, and the owner of a port.
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/throws.h"
#include "cluster/control_job.h"
#include "cluster/listen_addresses.h"
#include "cluster/port_owner.h"
#include "cluster/sockets.h"
#include "lockstep/error.h"

namespace lockstep::detail {
namespace {

const std::vector<Interface> kInterfaces = {
    {.name = "lo", .address = "127.0.0.1", .loopback = true},
    {.name = "eth0", .address = "10.0.0.7"},
    {.name = "eth1", .address = "fd00::1", .ipv6 = true},
};

TEST(ListenAddresses, AreThoseThatTheNameResolvesTo) {
  struct Row {
    const char* host;
    std::vector<std::string> resolved, expected;
    bool logged;
  };
  const Row rows[] = {
      {"10.0.0.7", {"10.0.0.7"}, {"10.0.0.7"}, false},
      {"127.0.0.1", {"127.0.0.1"}, {"127.0.0.1"}, false},
      {"0.0.0.0", {"0.0.0.0"}, {"0.0.0.0"}, false},
      {"::", {"::"}, {"::"}, false},
      {"localhost", {"::1", "127.0.0.1"}, {"::1", "127.0.0.1"}, false},
      {"n01", {"10.0.0.7", "fd00::1"}, {"10.0.0.7", "fd00::1"}, false},
      {"n01", {"10.0.0.7", "10.0.0.7"}, {"10.0.0.7"}, false},
      {"n01", {"10.9.9.9", "10.0.0.7"}, {"10.0.0.7"}, false},
      // A machine whose name resolves to 127.0.1.1, and a Kubernetes Service in front of it.
      {"n01", {"127.0.1.1"}, {"::"}, true},
      {"job-worker-0", {"10.96.0.12"}, {"::"}, true},
  };
  for (const Row& row : rows) {
    Lines lines;
    EXPECT_EQ(listen_addresses(row.host, row.resolved, kInterfaces, lines.log()), row.expected) << row.host;
    EXPECT_EQ(lines.take().size(), row.logged ? 1u : 0u) << row.host;
  }
}

TEST(ListenAddresses, WildcardIsLoggedWithTheReason) {
  Lines lines;
  EXPECT_EQ(listen_addresses("n01", {"127.0.1.1"}, {kInterfaces[0]}, lines.log()), std::vector<std::string>{"0.0.0.0"});
  EXPECT_EQ(lines.take(), std::vector<std::string>{"the coordinator listens on all addresses of this machine, because "
                                                   "n01 resolves to 127.0.1.1 here; set coordinator_bind_address to "
                                                   "restrict it"});
}

TEST(ListenAddresses, AddressOfAnotherMachineIsRefused) {
  EXPECT_THROWS(listen_addresses("10.9.9.9", {"10.9.9.9"}, kInterfaces, log_to_stderr), Error,
                "listen: 10.9.9.9 is not an address of this machine, where process 0 runs; start process 0 on that "
                "machine, or set coordinator_bind_address");
}

TEST(PortOwner, IsFound) {
  TestSocket socket;
  const int port = socket.listen();
  const std::string owner = port_owner(port);
  EXPECT_EQ(owner.find("pid " + std::to_string(::getpid()) + " ("), 0u) << owner;
}

TEST(PortOwner, IsEmptyForAFreePort) {
  TestSocket socket;
  EXPECT_EQ(port_owner(0), "");
}

}  // namespace
}  // namespace lockstep::detail
