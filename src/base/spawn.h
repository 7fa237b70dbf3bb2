// Starting another program without a shell, and ending it with all that it started. Safe from any thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

namespace lockstep {

// Starts a program (searched on the PATH when it has no slash) in a process group of its own, with the given
// descriptors as standard input, output and error; -1: nothing. Signals that this process blocks or ignores can end it.
// Throws IoError.
pid_t spawn_program(const std::string& program, const std::vector<std::string>& argv,
                    const std::array<int, 3>& streams);

// Whether it has ended; it is left to be reaped.
bool has_ended(pid_t child);

// Kills what is left of its group, reaps it and returns its exit code, 128 + n for signal n. Once for each child.
int end_group(pid_t child);

}  // namespace lockstep
