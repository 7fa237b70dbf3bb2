// SlurmClient: submits, queries and cancels jobs by running sbatch, scontrol, squeue, sacct and scancel. Used by one
// thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "jobs/slurm/job_info.h"

namespace lockstep {

class SlurmClient {
 public:
  // Throws Error if one of the programs is not on the PATH. sacct is optional.
  SlurmClient();

  struct Submission {
    std::string script;   // path of the batch script
    std::string folder;   // working directory of the job
    std::string output;   // file for the output of the script; appended to
    std::string comment;  // identifies the job for find_by_comment(); without spaces
  };
  // Returns the id of the new job. Throws Error with Slurm's message if Slurm rejects it.
  std::string submit(const Submission& submission);

  // The id of the user's pending or running job with this comment; nullopt if there is none. Throws IoError if Slurm
  // does not respond.
  std::optional<std::string> find_by_comment(const std::string& comment);

  // Throws IoError if the controller does not respond.
  void check_controller();

  // The current state of a job; nullopt if Slurm does not know it. Without accounting, Slurm forgets a job some minutes
  // after its end. Throws IoError if Slurm does not respond.
  std::optional<SlurmJobInfo> query(const std::string& id);

  // Cancels a job. Does nothing if it has already ended.
  void cancel(const std::string& id);
};

}  // namespace lockstep
