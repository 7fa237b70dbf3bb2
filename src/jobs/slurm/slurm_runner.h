// Jobs under Slurm: sbatch starts them, squeue, scontrol and, where there is accounting, sacct tell how they stand.
// Used by one thread.
#pragma once

#include <memory>

#include "jobs/runner.h"

namespace lockstep {

// Throws Error where Slurm's programs are missing.
std::unique_ptr<Runner> make_slurm_runner();

}  // namespace lockstep
