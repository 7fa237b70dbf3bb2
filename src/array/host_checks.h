// What a run of a program may report afterwards: checks that failed in it, and where a NaN came from. Safe from any thread.
#pragma once

#include "lockstep/trace.h"
#include "program/program.h"

namespace lockstep::detail {

// Records that a check failed in the program that runs now.
void add_failed_check(const std::string& message);
// Throws Error with the messages of the checks that have failed since the last call.
void throw_failed_checks();

// Whether results are searched for NaN (debug::check_nans).
bool checks_nans();
// Throws Error when a result has a NaN. Computes the program again, equation by equation, and names the first equation
// whose result has a NaN. `args`: the arrays for all inputs; some may have been donated.
void check_nans(const Program& program, std::span<const Array> args, std::span<const Array> results);

// Throws Error: this thread is in a function of the host, which must not run programs.
void check_outside_host_call(const char* what);

}  // namespace lockstep::detail
