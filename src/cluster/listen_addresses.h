// Chooses the addresses that process 0 listens on. Pure functions, thread-safe.
#pragma once

#include <string>
#include <vector>

#include "cluster/address.h"
#include "cluster/control_channel.h"

namespace lockstep::detail {

// Whether only processes of this machine can reach that IP address.
bool is_loopback_ip(const std::string& ip);

// The IP addresses to listen on for the coordinator host `host`, which resolves to `resolved` on this machine: those
// that belong to this machine. If none does, or only loopback, returns the wildcard address and logs a line. This
// happens when the name is that of a Kubernetes Service, or when /etc/hosts maps a machine's own name to loopback.
// Throws Error if `host` is an IP address that this machine does not have.
std::vector<std::string> listen_addresses(const std::string& host, const std::vector<std::string>& resolved,
                                          const std::vector<Interface>& interfaces, const LogLine& log);

}  // namespace lockstep::detail
