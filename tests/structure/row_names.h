// Finds the places that name a row of ops.def: passes and plans read the columns of a row instead. Pure functions, safe
// from any thread.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::structure {

// The names in the lines `OP(name)` and `UNARY(name, ...)` of ops.def and elementwise.def.
std::set<std::string> row_names(std::string_view ops_def, std::string_view elementwise_def);

// Messages "path:line: ..." for identifiers `name_op` of these rows, and for comparisons of an op's name. Comments do not
// count.
std::vector<std::string> find_row_names(const std::set<std::string>& rows, const std::string& path,
                                        std::string_view text);

}  // namespace lockstep::structure
