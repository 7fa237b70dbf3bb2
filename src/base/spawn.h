// Starts a program without a shell, and kills it with all its descendants. Safe from any thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

namespace lockstep {

// Starts a program in a new process group and returns its pid. A program without a slash is searched on the PATH.
// `streams` are its standard input, output and error; -1: /dev/null. All signals have their default action in it. Throws
// IoError.
pid_t spawn_program(const std::string& program, const std::vector<std::string>& argv,
                    const std::array<int, 3>& streams);

// Whether the child has ended. Does not reap it.
bool has_ended(pid_t child);

// Kills the process group of the child, reaps the child and returns its exit code, 128 + n for signal n. REQUIRES:
// called once for each child.
int end_group(pid_t child);

}  // namespace lockstep
