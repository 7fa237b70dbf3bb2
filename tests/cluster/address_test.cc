#include "cluster/address.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/printable.h"
#include "lockstep/error.h"
#include "support/listener.h"

namespace lockstep::detail {
namespace {

using namespace std::chrono_literals;

template <class F>
std::string error_of(F call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  } catch (const IoError& error) {
    return std::string("io: ") + error.what();
  }
  return "";
}

TEST(Address, ParsesAndFormats) {
  for (const char* text : {"node1:1", "10.0.0.1:65535", "[fd00::1]:1234", "a-b.c_d.org:80"})
    EXPECT_EQ(to_string(parse_address(text, "A")), text);
  EXPECT_EQ(parse_address("[::1]:7", "A"), (Address{"::1", 7}));
  EXPECT_EQ(parse_address("[::1]", "A", 7), (Address{"::1", 7}));
  EXPECT_EQ(parse_address("node1", "A", 7), (Address{"node1", 7}));
  EXPECT_EQ(parse_address("node1:8", "A", 7), (Address{"node1", 8}));
}

TEST(Address, RejectsMalformedText) {
  const auto refused = [](const char* text) { return error_of([=] { parse_address(text, "A"); }); };
  EXPECT_EQ(refused("node1"), "initialize: A is \"node1\", which has no port; write HOST:PORT, such as node1:1234");
  EXPECT_EQ(refused("[::1]"), "initialize: A is \"[::1]\", which has no port; write HOST:PORT, such as [::1]:1234");
  for (const char* text : {"::1", "fd00::1:1234", "a:1:2"})
    EXPECT_EQ(refused(text), "initialize: A is \"" + std::string(text) +
                                 "\", which has several colons; put an IPv6 address in brackets, as in [fd00::1]:1234");
  for (const char* text : {"[::1", "[]:1", "[::1]1234"})
    EXPECT_EQ(refused(text), "initialize: A is \"" + std::string(text) +
                                 "\", which is not an address; write [IPV6]:PORT, such as [fd00::1]:1234");
  for (const char* text : {":1234", "tcp//x:1", "a b:1", "[[::1]:1", "a]:1", "a\x01:1"})
    EXPECT_EQ(refused(text), "initialize: A is \"" + printable(text) +
                                 "\", which has no valid host name; write HOST:PORT, such as node1:1234");
  for (const char* port : {"", "0", "65536", "-1", "1x", "99999999999", " 1"})
    EXPECT_EQ(refused(("a:" + std::string(port)).c_str()), "initialize: A is \"a:" + std::string(port) + "\", and \"" +
                                                               port +
                                                               "\" is not a port; ports are numbers from 1 to 65535");
}

std::vector<Interface> machine() {
  return {{.name = "lo", .address = "127.0.0.1", .loopback = true},
          {.name = "docker0", .address = "172.17.0.1"},
          {.name = "eth0", .address = "fe80::1", .ipv6 = true, .link_local = true},
          {.name = "eth0", .address = "fd00::1", .ipv6 = true},
          {.name = "eth0", .address = "10.0.0.1"},
          {.name = "ib0", .address = "10.1.0.1"},
          {.name = "ib1", .address = "10.1.0.2"}};
}

std::string chosen(const std::string& pattern) {
  std::string out;
  for (const Interface& each : choose_interfaces(pattern, machine())) out += (out.empty() ? "" : " ") + each.address;
  return out;
}

TEST(Interfaces, PatternsSelectByName) {
  EXPECT_EQ(chosen("eth0"), "10.0.0.1 fd00::1 fe80::1");
  EXPECT_EQ(chosen("ib*"), "10.1.0.1 10.1.0.2");
  EXPECT_EQ(chosen("ib?,lo"), "10.1.0.1 10.1.0.2 127.0.0.1");
  EXPECT_EQ(chosen("*1"), "10.1.0.2");
  EXPECT_EQ(chosen("^docker*"), "10.0.0.1 10.1.0.1 10.1.0.2 fd00::1 fe80::1 127.0.0.1");
  EXPECT_EQ(chosen("^docker*,ib*,lo"), "10.0.0.1 fd00::1 fe80::1");
  EXPECT_EQ(chosen(""), "172.17.0.1 10.0.0.1 10.1.0.1 10.1.0.2 fd00::1 fe80::1 127.0.0.1");
}

TEST(Interfaces, PatternsWithManyStarsMatchWithoutExponentialTime) {
  std::string stars;
  for (int i = 0; i < 200; ++i) stars += "*?*";
  EXPECT_EQ(error_of([&] {
              choose_interfaces(stars + "x", {{.name = std::string(200, 'a'), .address = "10.0.0.1"}});
            }).find("no network interface"),
            12u);
  EXPECT_EQ(chosen("*e*t*h**"), "10.0.0.1 fd00::1 fe80::1");
  EXPECT_EQ(chosen("**1*"), "10.1.0.2");
}

TEST(Interfaces, PatternWithoutMatchIsRefused) {
  EXPECT_EQ(error_of([] { choose_interfaces("eth1", machine()); }),
            "initialize: no network interface matches \"eth1\"; available: lo, docker0, eth0, ib0, ib1");
  EXPECT_EQ(error_of([] { choose_interfaces("^*", {machine()[0]}); }),
            "initialize: no network interface matches \"^*\"; available: lo");
  EXPECT_EQ(error_of([] { choose_interfaces("eth0", {}); }),
            "initialize: no network interface matches \"eth0\"; available: none");
}

TEST(Network, LoopbackIsListedAndRoutesToItself) {
  const std::vector<Interface> all = list_interfaces();
  EXPECT_TRUE(std::any_of(all.begin(), all.end(),
                          [](const Interface& each) { return each.loopback && each.address == "127.0.0.1"; }));
  EXPECT_EQ(local_address_towards({"127.0.0.1", 1234}, 10s), "127.0.0.1");
}

TEST(Network, IpAddressesResolveToThemselves) {
  EXPECT_EQ(resolve("127.0.0.1", 10s), std::vector<std::string>{"127.0.0.1"});
  EXPECT_EQ(resolve("::1", 10s), std::vector<std::string>{"::1"});
}

TEST(Network, InvalidNameIsRefused) {
  const std::string error = error_of([] { resolve("no..such..name", 10s); });
  EXPECT_TRUE(error.starts_with("io: resolve no..such..name: ")) << error;
  EXPECT_TRUE(error.ends_with("; check the name, or use an IP address") ||
              error.find("no answer in 10 s") != error.npos)
      << error;
}

TEST(Network, ProbeDistinguishesListeningFromClosedPorts) {
  Listener listener;
  EXPECT_EQ(probe_port("127.0.0.1", listener.port(), 10s).result, PortProbe::Result::answered);
  EXPECT_NE(listen_error("127.0.0.1", listener.port()), "");
  listener.close();
  const PortProbe after = probe_port("127.0.0.1", listener.port(), 10s);
  EXPECT_EQ(after.result, PortProbe::Result::refused);
  EXPECT_EQ(after.detail, "Connection refused");
  EXPECT_EQ(listen_error("127.0.0.1", listener.port()), "");
}

TEST(Network, ProbeOfAFullQueueTimesOut) {
  const Listener busy(0);  // never accepts
  PortProbe last = probe_port("127.0.0.1", busy.port(), 10s);
  EXPECT_EQ(last.result, PortProbe::Result::answered);
  for (int i = 0; i < 32 && last.result == PortProbe::Result::answered; ++i)
    last = probe_port("127.0.0.1", busy.port(), 50ms);
  EXPECT_EQ(last.result, PortProbe::Result::timed_out);
  EXPECT_EQ(last.detail, "no answer in 0.05 s");
}

TEST(Network, BroadcastAddressIsUnreachable) {
  EXPECT_EQ(probe_port("255.255.255.255", 1, 10s).result, PortProbe::Result::unreachable);
  const std::string error = error_of([] { local_address_towards({"255.255.255.255", 1}, 10s); });
  EXPECT_TRUE(error.starts_with("io: route to 255.255.255.255:1: ")) << error;
  EXPECT_TRUE(error.ends_with("; check the address and this machine's network")) << error;
}

TEST(Network, CannotListenOnAddressOfAnotherMachine) {
  EXPECT_NE(listen_error("192.0.2.77", 55527), "");  // TEST-NET-1: no machine has it
}

}  // namespace
}  // namespace lockstep::detail
