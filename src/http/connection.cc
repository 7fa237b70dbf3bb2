#include "http/connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace lockstep::http {

Peer& Peers::of(const sockaddr_storage& address) {
  if (address.ss_family != AF_INET6)
    return all_[{false, ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr)}];
  const in6_addr& number = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&number)) {
    uint32_t four = 0;
    std::memcpy(&four, number.s6_addr + 12, sizeof(four));
    return all_[{false, ntohl(four)}];
  }
  uint64_t network = 0;
  std::memcpy(&network, number.s6_addr, sizeof(network));
  return all_[{true, network}];
}

int64_t Peers::most() const {
  int64_t most = 0;
  for (const auto& [address, peer] : all_) most = std::max(most, peer.connections);
  return most;
}

void Peers::forget_gone() {
  std::erase_if(all_, [](const auto& each) { return each.second.connections == 0; });
}

int eviction_rank(const Connection& connection, Clock::time_point now) {
  enum Rank { unproved, draining, idle, reading, stalled };
  if (connection.is_extra) return -1;
  switch (connection.phase) {
    case Connection::Phase::reading:
      if (!connection.was_served && !connection.parser.has_head()) return unproved;
      return connection.parser.has_begun() ? reading : idle;
    case Connection::Phase::draining:
      return draining;
    case Connection::Phase::writing:
      return now - connection.since > std::chrono::seconds(1) ? stalled : -1;
    case Connection::Phase::waiting:
      return -1;
  }
  return -1;
}

}  // namespace lockstep::http
