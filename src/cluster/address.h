// Network addresses: parsing host and port, name resolution, network interfaces, probing of TCP ports. `ip` is an
// address in numeric form, such as "10.0.0.7" or "fd00::1". Thread-safe.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/descriptor.h"

namespace lockstep::detail {

inline constexpr int kLastPort = 65535;

struct Address {
  std::string host;  // a name or an IP address, without brackets
  int port = 0;

  bool operator==(const Address&) const = default;
};

// "host:port", "[fd00::1]:port".
std::string to_string(const Address&);

// Parses that form. `source` names the origin of the text, such as a variable. Throws Error, with the source and the
// text, if the port is missing or not in 1 ... 65535, and for an IPv6 address without brackets.
Address parse_address(std::string_view text, std::string_view source);

// The same, with a default port.
Address parse_address(std::string_view text, std::string_view source, int port);

// One address of a network interface. An interface with several addresses has several entries.
struct Interface {
  std::string name;     // "eth0"
  std::string address;  // "10.0.0.7", "fd00::1"
  bool ipv6 = false, loopback = false;
  bool link_local = false;  // valid on one network link only

  bool operator==(const Interface&) const = default;
};

// Returns the interfaces that match a pattern: names separated by commas, with the wildcards * and ?. A leading ^
// inverts the pattern; "" matches all. The preferred ones come first: not loopback, not link-local, IPv4. Throws Error,
// listing the interfaces, if none matches.
std::vector<Interface> choose_interfaces(std::string_view pattern, std::vector<Interface> interfaces);

// Lists the interfaces of this machine that are up. Throws IoError.
std::vector<Interface> list_interfaces();

// Resolves a host name to IP addresses, in the system's order. Throws IoError if it does not resolve within `timeout`.
std::vector<std::string> resolve(const std::string& host, std::chrono::milliseconds timeout);

// The source address that this machine uses to reach `remote`, under which `remote` can reach this machine. Sends no
// packet. Throws IoError if the host does not resolve or has no route.
std::string local_address_towards(const Address& remote, std::chrono::milliseconds timeout);

// Result of connecting to a TCP port.
struct PortProbe {
  enum class Result { answered, refused, timed_out, unreachable };
  Result result = Result::timed_out;
  std::string detail;  // the system's error message
};
PortProbe probe_port(const std::string& ip, int port, std::chrono::milliseconds timeout);

// Returns a non-blocking socket that listens on a TCP port (0: any free one). On failure returns an empty
// descriptor and sets `why` to the system's error message. At "::" it accepts IPv4 connections too.
Descriptor listen_at(const std::string& ip, int port, std::string& why);

// Tries to listen on a TCP port: the system's error message, or empty on success.
std::string listen_error(const std::string& ip, int port);

}  // namespace lockstep::detail
