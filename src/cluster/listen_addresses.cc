#include "cluster/listen_addresses.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep::detail {

bool is_loopback_ip(const std::string& ip) { return ip.starts_with("127.") || ip == "::1"; }

namespace {

bool is_wildcard(const std::string& ip) { return ip == "0.0.0.0" || ip == "::"; }

}  // namespace

std::vector<std::string> listen_addresses(const std::string& host, const std::vector<std::string>& resolved,
                                          const std::vector<Interface>& interfaces, const LogLine& log) {
  std::vector<std::string> own;
  for (const std::string& ip : resolved) {
    const bool here = is_loopback_ip(ip) || is_wildcard(ip) ||
                      std::ranges::any_of(interfaces, [&](const Interface& each) { return each.address == ip; });
    if (here && std::ranges::find(own, ip) == own.end()) own.push_back(ip);
  }
  const bool is_ip = std::ranges::find(resolved, host) != resolved.end();
  if (is_ip && own.empty())
    throw_error(
        "listen: {} is not an address of this machine, where process 0 runs; start process 0 on that machine, or set "
        "coordinator_bind_address",
        host);
  const bool only_loopback = !is_ip && !host.starts_with("localhost") && std::ranges::all_of(own, is_loopback_ip);
  if (!own.empty() && !only_loopback) return own;
  log(
      fmt::format("the coordinator listens on all addresses of this machine, because {} resolves to {} here; set "
                  "coordinator_bind_address to restrict it",
                  host, fmt::join(resolved, ", ")));
  const bool has_ipv6 = std::ranges::any_of(interfaces, &Interface::ipv6);
  return {has_ipv6 ? "::" : "0.0.0.0"};
}

}  // namespace lockstep::detail
