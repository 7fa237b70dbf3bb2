// Starting a program as a process that nobody waits for: it outlives its parent, the terminal and the session. Safe
// from any thread.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// This very program.
inline constexpr const char* kOwnProgram = "/proc/self/exe";

// `arguments` follow the program's name; `environment` is NAME=value, all there are. Standard streams are /dev/null, no
// other descriptor is passed on, the folder is /, and files that it makes are the user's alone. Throws IoError when no
// process can be made; what the program itself makes of it is not known here.
void start_detached(const std::string& program, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment);

}  // namespace lockstep
