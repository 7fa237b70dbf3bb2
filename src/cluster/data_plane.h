// The data plane: a Comm for each lane of this process among the lanes of all processes, over what connects them best.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cluster/control.h"
#include "comm/comm.h"
#include "lockstep/distributed.h"

namespace lockstep {

// What a process says of itself to the others.
struct ProcessFacts {
  std::string host;     // the same where processes can share memory
  std::string address;  // under which others reach it
  int lanes = 1;
  int devices = 1;
  std::string platform = "cpu";  // what it computes on

  bool operator==(const ProcessFacts&) const = default;
};
std::string to_text(const ProcessFacts&);
ProcessFacts process_facts_from(const std::string& text);

// Names the machine, and its network namespace and /dev/shm as this process sees them. LOCKSTEP_TEST_HOST, which only
// tests set, is added: processes with another are on another host.
std::string host_identity();

// The address under which others reach this process: that of the interface that is asked for, or else the one on the
// way to the coordinator (empty: there is none). Where that is this machine itself, the one on the way to processes
// elsewhere. Throws Error when no interface is meant, IoError when there is no way.
std::string own_address(const Control& control, const std::string& coordinator, const distributed::Options& options);

// Facts of all processes, by id, under a name of which each is used once. Throws Error when some compute on GPUs and
// others do not, and as Control does.
std::vector<ProcessFacts> exchange_facts(Control& control, const ProcessFacts& own, std::chrono::nanoseconds timeout,
                                         const std::string& name = "process");

// The place of a process among those of its host, and how many these are.
struct LocalRank {
  int id = 0, count = 1;
};
LocalRank local_rank(const std::vector<ProcessFacts>& facts, int process);

struct DataPlane {
  std::vector<std::unique_ptr<Comm>> lanes;  // of this process
  std::string description;                   // "shared memory", "shared memory on each of 2 hosts, TCP between them"
};

// Connects; every process calls it. Where a host has no shared memory, all processes use TCP (or MPI), unless shared
// memory was requested. `mpi`: the processes were started by MPI. Throws Error when what is asked for is not built in
// or not available, or processes have different numbers of lanes, and as the Comms do.
DataPlane connect(Control& control, const std::vector<ProcessFacts>& facts, const distributed::Options& options,
                  bool mpi);

}  // namespace lockstep
