// Addresses: host and port as text, and finding the machines and interfaces behind them. Safe from any thread.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {

inline constexpr int kLastPort = 65535;

struct Address {
  std::string host;  // a name or a number, without brackets
  int port = 0;

  bool operator==(const Address&) const = default;
};

// "host:port", "[fd00::1]:port".
std::string to_string(const Address&);

// Reads that. `source` is where the text is from, such as a variable. Throws Error, naming it and the text, when there
// is no port, when the port is not one from 1 to 65535, and for an IPv6 address without brackets.
Address parse_address(std::string_view text, std::string_view source);

// The same where the port may be elsewhere: `port` is the one to use when the text has none.
Address parse_address(std::string_view text, std::string_view source, int port);

// A network interface has an entry for each of its addresses.
struct Interface {
  std::string name;     // "eth0"
  std::string address;  // "10.0.0.7", "fd00::1"
  bool ipv6 = false, loopback = false;
  bool link_local = false;  // of no use beyond one cable

  bool operator==(const Interface&) const = default;
};

// Those meant by a pattern: names separated by commas, in which * stands for any letters and ? for one; with ^ before
// the first, all but those. "" means all. The best come first: not loopback, not link-local, IPv4. Throws Error, naming
// what there is, when none is meant.
std::vector<Interface> choose_interfaces(std::string_view pattern, std::vector<Interface> interfaces);

// Those of this machine that are up. Throws IoError.
std::vector<Interface> list_interfaces();

// The addresses of a host, as numbers, in the system's order. Throws IoError when it has none, and when nobody has
// answered in time.
std::vector<std::string> resolve(const std::string& host, std::chrono::milliseconds timeout);

// This machine's address on the way to another: the one under which that can reach this. No packet is sent. Throws
// IoError when the host has no address or there is no way to it.
std::string local_address_towards(const Address& remote, std::chrono::milliseconds timeout);

// What came of knocking at a TCP port.
struct PortProbe {
  enum class Result { answered, refused, timed_out, unreachable };
  Result result = Result::timed_out;
  std::string detail;  // the system's words
};
PortProbe probe_port(const std::string& number, int port, std::chrono::milliseconds timeout);

// A non-blocking socket that listens at a TCP port (0: any free one), which the caller closes; or -1, and the system's
// reason in `why`. At "::" it takes IPv4 connections too.
int listen_at(const std::string& number, int port, std::string& why);

// Why a TCP port cannot be listened at, in the system's words; empty when it can.
std::string listen_error(const std::string& number, int port);

}  // namespace lockstep::detail
