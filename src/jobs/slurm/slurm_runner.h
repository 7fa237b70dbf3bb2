// The runner for Slurm. sbatch starts jobs; squeue, scontrol and (with accounting) sacct report their state. Used by
// one thread.
#pragma once

#include <memory>

#include "jobs/runner.h"

namespace lockstep {

// Throws Error if Slurm's programs are not on the PATH.
std::unique_ptr<Runner> make_slurm_runner();

}  // namespace lockstep
