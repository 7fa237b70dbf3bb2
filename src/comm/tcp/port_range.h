// PortRange: the ports on which the ranks of a process may listen, for networks that admit only some. Safe from any
// thread.
#pragma once

#include <string>

namespace lockstep {

// Both 0: any free port.
struct PortRange {
  int first = 0, last = 0;
};

// Parses FIRST-LAST, such as "61000-64999"; "": any free port. Throws Error, which starts with `what`.
PortRange parse_port_range(const std::string& text, const std::string& what);

}  // namespace lockstep
