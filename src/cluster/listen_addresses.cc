#include "cluster/listen_addresses.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep::detail {

bool is_loopback_ip(const std::string& number) { return number.starts_with("127.") || number == "::1"; }

namespace {

bool is_any(const std::string& number) { return number == "0.0.0.0" || number == "::"; }

}  // namespace

std::vector<std::string> listen_addresses(const std::string& host, const std::vector<std::string>& resolved,
                                          const std::vector<Interface>& interfaces, const LogLine& log) {
  std::vector<std::string> own;
  for (const std::string& number : resolved) {
    const bool here = is_loopback_ip(number) || is_any(number) ||
                      std::ranges::any_of(interfaces, [&](const Interface& each) { return each.address == number; });
    if (here && std::ranges::find(own, number) == own.end()) own.push_back(number);
  }
  const bool is_number = std::ranges::find(resolved, host) != resolved.end();
  if (is_number && own.empty())
    throw_error(
        "listen: {} is no address of this machine, where process 0 runs; start process 0 there, or say where it "
        "listens with coordinator_bind_address",
        host);
  const bool to_itself = !is_number && !host.starts_with("localhost") && std::ranges::all_of(own, is_loopback_ip);
  if (!own.empty() && !to_itself) return own;
  log(
      fmt::format("the coordinator listens at all addresses of this machine, because {} means {} here; "
                  "coordinator_bind_address says it closer",
                  host, fmt::join(resolved, ", ")));
  const bool has_ipv6 = std::ranges::any_of(interfaces, &Interface::ipv6);
  return {has_ipv6 ? "::" : "0.0.0.0"};
}

}  // namespace lockstep::detail
