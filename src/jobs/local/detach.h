// Starts a program as a detached process, which outlives its parent, the terminal and the session. Safe from any
// thread.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// The executable of this process.
inline constexpr const char* kOwnProgram = "/proc/self/exe";

// `arguments` do not include argv[0]; `environment` is the complete environment (NAME=value). The process has /dev/null
// as its standard streams, no other descriptors, the working directory / and umask 077. Throws IoError if no process
// can be created; a failure to execute the program is not reported.
void start_detached(const std::string& program, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment);

}  // namespace lockstep
