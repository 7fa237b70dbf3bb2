#include "cluster/mpi_job.h"

#include "base/check.h"
#include "comm/mpi/mpi.h"
#include "comm/mpi/mpi_library.h"

namespace lockstep {

namespace {

#ifdef LOCKSTEP_WITH_GRPC
constexpr bool kNetwork = true;
#else
constexpr bool kNetwork = false;
#endif

void check_place(int process_id, int process_count) {
  const MpiRank self = mpi_rank();
  if (self.rank != process_id || self.size != process_count)
    throw_error(
        "initialize: the launcher reports process {} of {}, but MPI reports rank {} of {}; start the program with the "
        "mpirun of {} (under Slurm, srun --mpi=pmix), or set LOCKSTEP_COORDINATOR and use LOCKSTEP_COLLECTIVES=tcp",
        process_id, process_count, self.rank, self.size, mpi_library().version);
}

}  // namespace

bool mpi_is_available() { return mpi_library().functions != nullptr; }

std::function<std::unique_ptr<Mailbox>()> mailbox_factory(const detail::ClusterInfo& info) {
  if (!info.mpi || (kNetwork && !info.coordinator.empty())) return {};
  check_place(info.process_id, info.process_count);
  return mpi_mailbox;
}

std::unique_ptr<Comm> mpi_group(int process_id, int process_count, const std::vector<int>& processes,
                                const std::string& key, std::chrono::nanoseconds timeout) {
  check_place(process_id, process_count);
  return mpi_comm({.timeout = timeout, .processes = processes, .key = key});
}

void end_mpi_job() { mpi_allow_finalize(); }

}  // namespace lockstep
