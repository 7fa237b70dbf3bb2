// Slurm host lists: `login1,n[001-003,7],r[1-2]x[3,4]`. Pure functions, thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {

// Expands a host list in order. Numbers keep their leading zeros, and of several brackets the last varies fastest:
// login1, n001, n002, n003, n7, r1x3, r1x4, r2x3, r2x4. `source` names the origin of the text, such as a variable.
// Throws Error, with the source and the text, for a malformed list, more than 65536 names, or a name of more than 255
// characters.
std::vector<std::string> expand_host_list(std::string_view text, std::string_view source);

}  // namespace lockstep::detail
