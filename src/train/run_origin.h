// Where a run was started, for its record: the commit of the working directory, the command line, and the
// environment that matters. Safe from any thread while none changes the environment.
#pragma once

#include <string>
#include <vector>

#include "base/os/environment.h"

namespace lockstep {

// The commit that is checked out in the repository of a folder. Empty if the folder is in no repository, or if git is
// not installed or does not answer in time.
struct GitCommit {
  std::string commit;
  bool modified = false;  // files that git tracks differ from it
};
GitCommit git_commit_of(const std::string& folder);

// The command line of this process.
std::vector<std::string> own_command_line();

// The variables that describe where and how a run computes: those of Lockstep, CUDA and OpenMP, and of the job of a
// cluster. Secrets are not among them.
detail::Environment environment_of_run(const detail::Environment& environment);

}  // namespace lockstep
