#include "cluster/mpi_job.h"

#include "base/check.h"
#include "base/names.h"
#ifdef LOCKSTEP_WITH_MPI
#include "comm/mpi/mpi.h"
#endif

namespace lockstep {

namespace {

#ifdef LOCKSTEP_WITH_GRPC
constexpr bool kNetwork = true;
#else
constexpr bool kNetwork = false;
#endif

#ifdef LOCKSTEP_WITH_MPI
void check_place(int process_id, int process_count) {
  const MpiRank self = mpi_rank();
  if (self.rank != process_id || self.size != process_count)
    throw_error(
        "initialize: the launcher reports process {} of {}, but MPI reports rank {} of {}; start the program with the "
        "mpirun of the MPI that it is linked with (under Slurm, srun --mpi=pmix), or set LOCKSTEP_COORDINATOR and use "
        "LOCKSTEP_COLLECTIVES=tcp",
        process_id, process_count, self.rank, self.size);
}
#endif

[[noreturn, maybe_unused]] void throw_not_built() {
  throw_error(
      "initialize: MPI is needed, but this build of lockstep does not include it; install libopenmpi-dev and "
      "openmpi-bin and rebuild, or set LOCKSTEP_COORDINATOR to HOST:PORT of process 0 and LOCKSTEP_COLLECTIVES=tcp");
}

}  // namespace

bool mpi_is_built_in() {
#ifdef LOCKSTEP_WITH_MPI
  return true;
#else
  return false;
#endif
}

std::function<std::unique_ptr<Mailbox>()> mailbox_factory(const detail::ClusterInfo& info) {
  if (!info.mpi || (kNetwork && !info.coordinator.empty())) return {};
#ifdef LOCKSTEP_WITH_MPI
  check_place(info.process_id, info.process_count);
  return mpi_mailbox;
#else
  throw_not_built();
#endif
}

std::unique_ptr<Comm> mpi_group([[maybe_unused]] int process_id, [[maybe_unused]] int process_count,
                                [[maybe_unused]] const std::vector<int>& processes,
                                [[maybe_unused]] const std::string& key,
                                [[maybe_unused]] std::chrono::nanoseconds timeout) {
#ifdef LOCKSTEP_WITH_MPI
  check_place(process_id, process_count);
  return mpi_comm({.timeout = timeout, .processes = processes, .key = key});
#else
  throw_not_built();
#endif
}

void end_mpi_job() {
#ifdef LOCKSTEP_WITH_MPI
  mpi_allow_finalize();
#endif
}

}  // namespace lockstep
