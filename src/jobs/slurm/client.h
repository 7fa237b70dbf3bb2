// Slurm, as its programs let it be reached: sbatch, scontrol, squeue, sacct, scancel. Used by one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "jobs/slurm/sight.h"

namespace lockstep {

class SlurmClient {
 public:
  // Throws Error where one of the programs is missing.
  SlurmClient();

  struct Submission {
    std::string script;   // its path
    std::string folder;   // in which it starts
    std::string output;   // the file to which it prints
    std::string comment;  // by which find() knows it; no spaces
  };
  // The new job's number. Throws Error with Slurm's words when it is refused.
  std::string submit(const Submission& submission);

  // A job that waits or runs, by its comment.
  std::optional<std::string> find(const std::string& comment);

  // Throws IoError when the controller does not answer.
  void check();

  // None when Slurm knows nothing of it (any more): without accounting it forgets jobs some minutes after their end.
  // Throws IoError when Slurm does not answer.
  std::optional<SlurmSight> ask(const std::string& id);

  // Ends it; nothing is done where it has ended already.
  void cancel(const std::string& id);
};

}  // namespace lockstep
