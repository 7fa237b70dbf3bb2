// The outermost function of `lockstep` and of users' programs: what happens around the command line. Used by the main
// thread only.
#pragma once

#include <functional>
#include <string>

namespace lockstep::cli {

// Runs the program of this name and returns its exit code:
//
//   0   success
//   1   failure
//   2   the command line, a configuration file or an environment variable is wrong
//   3   an expectation (--expect) was not met
//   75  a transient failure, so a restart may help: another process or a GPU was lost. In a replica of a Kubeflow JAXJob
//       the code is 138.
//
// Prints an exception as `NAME: message`, leaves the job, and flushes standard output. Does not return when a GPU no
// longer answers: the process ends with the code.
int run_program(const std::string& name, const std::function<int()>& body);

}  // namespace lockstep::cli
