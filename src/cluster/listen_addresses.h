// Where process 0 listens. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "cluster/address.h"
#include "cluster/control_channel.h"

namespace lockstep::detail {

// Whether only processes of this machine reach that number.
bool is_loopback_ip(const std::string& number);

// The numbers to listen at for a host whose name means `resolved` on this machine: those of them that are this
// machine's, and no others. All addresses of the machine, with a line in the log, only where a name leads nowhere else:
// to a service before this machine, or, as some distributions name a machine to itself, to its loopback. Throws Error
// for a number that is not this machine's.
std::vector<std::string> listen_addresses(const std::string& host, const std::vector<std::string>& resolved,
                                          const std::vector<Interface>& interfaces, const LogLine& log);

}  // namespace lockstep::detail
