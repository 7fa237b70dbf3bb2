// What this build can do, and which libraries it uses for that on this machine: for `lockstep version` and `lockstep
// doctor`. Used by the main thread only.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

// An optional part and its implementation: "control plane", "gRPC 1.51.1".
struct Feature {
  std::string name, used;  // used is empty: not available
  std::string why_not;     // why it is not available: "not built", or the error of loading it
};

// Loads the libraries that the program opens when it needs them (MPI, libcurl), and initializes none.
std::vector<Feature> features();

// The build: "8dcf5670e7b1" (with "-dirty" for changed files; "unknown" outside of a git repository), "Release",
// "g++ 12.2.0", "x86_64".
struct BuildFacts {
  std::string commit, type, compiler, machine;
};
BuildFacts build_facts();

}  // namespace lockstep::cli
