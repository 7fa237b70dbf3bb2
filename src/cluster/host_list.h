// Slurm's short way to write host names: `login1,n[001-003,7],r[1-2]x[3,4]`. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {

// All names, in the order of the list; numbers in brackets keep their zeros, and of several brackets the last counts
// fastest: n001, n002, n003, n7, r1x3, r1x4, r2x3, r2x4. `source` is where the text is from, such as a variable. Throws
// Error, naming it and the text, for what is not such a list, for more than 65536 names, and for a name of more than
// 255 characters.
std::vector<std::string> expand_host_list(std::string_view text, std::string_view source);

}  // namespace lockstep::detail
