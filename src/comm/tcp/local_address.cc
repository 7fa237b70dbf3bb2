#include "comm/tcp/local_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>
#include <optional>

#include "base/check.h"
#include "base/os/descriptor.h"
#include "base/os/host_name.h"

namespace lockstep::detail {

namespace {

LocalAddress copy_of(const sockaddr* address, socklen_t length) {
  LocalAddress out;
  std::memcpy(&out.address, address, length);
  out.length = length;
  return out;
}

std::optional<LocalAddress> of_interface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* one = list; one; one = one->ifa_next) {
    if (!one->ifa_addr || name != one->ifa_name) continue;
    if (one->ifa_addr->sa_family == AF_INET) return copy_of(one->ifa_addr, sizeof(sockaddr_in));
    if (one->ifa_addr->sa_family == AF_INET6) return copy_of(one->ifa_addr, sizeof(sockaddr_in6));
  }
  return std::nullopt;
}

// The first address of the name on which this host can listen.
std::optional<LocalAddress> of_name(const std::string& name) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  for (const addrinfo* one = list; one; one = one->ai_next) {
    const Descriptor socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket && ::bind(socket.get(), one->ai_addr, one->ai_addrlen) == 0)
      return copy_of(one->ai_addr, one->ai_addrlen);
  }
  return std::nullopt;
}

}  // namespace

LocalAddress local_address(const std::string& address, const std::string& interface) {
  if (!interface.empty()) {
    if (const auto found = of_interface(interface)) return *found;
    throw_error("tcp: no network interface \"{}\" with an address on this host; list them with `ip address`",
                interface);
  }
  const std::string name = address.empty() ? own_host_name() : address;
  if (const auto found = of_name(name)) return *found;
  throw_error(
      "tcp: \"{}\" is not an address of this host; give one that the other ranks can reach, or a network interface",
      name);
}

}  // namespace lockstep::detail
