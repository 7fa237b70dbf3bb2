// The data plane: connects the lanes of all processes and creates a Comm for each lane of this process. The fastest
// available transports are used: shared memory within a host, MPI or TCP between hosts. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cluster/control.h"
#include "comm/comm.h"
#include "lockstep/distributed.h"

namespace lockstep {

// What every process publishes about itself.
struct ProcessFacts {
  std::string host;     // see host_identity()
  std::string address;  // IP address under which other processes reach it
  int lanes = 1;
  int devices = 1;
  std::string platform = "cpu";        // "cpu" or "cuda"
  std::string cpus = {};               // that it may use: "0-15"
  bool mpi = false;                    // MPI started it, and it can load MPI
  std::string data_security = "auto";  // Options::data_security

  bool operator==(const ProcessFacts&) const = default;
};
std::string to_text(const ProcessFacts&);
ProcessFacts process_facts_from(const std::string& text);

// Identifies the machine, network namespace and /dev/shm of this process: equal for processes that can share memory.
// Tests set LOCKSTEP_TEST_HOST, which is appended, to simulate several hosts.
std::string host_identity();

// The IP address under which other processes reach this one: that of Options::network_interface, else the source
// address of the route to `coordinator` (empty: unknown). If that is loopback, the source address of the route to a
// process on another host. Throws Error if no interface matches, IoError if there is no route.
std::string own_address(const Control& control, const std::string& coordinator, const distributed::Options& options);

// Publishes this process's facts and returns those of all processes, by id. REQUIRES: every `name` is used once.
// Throws Error if the processes use different platforms, and as Control does.
std::vector<ProcessFacts> exchange_facts(Control& control, const ProcessFacts& own, std::chrono::nanoseconds timeout,
                                         const std::string& name = "process");

// The index of a process among the processes of its host, and their number.
struct LocalRank {
  int id = 0, count = 1;
};
LocalRank local_rank(const std::vector<ProcessFacts>& facts, int process);

struct DataPlane {
  std::vector<std::unique_ptr<Comm>> lanes;  // one Comm per lane of this process
  std::string description;                   // "shared memory", "shared memory on each of 2 hosts, TCP between them"
  // A note about data between hosts that is neither encrypted nor signed although the options do not ask for plain
  // data; empty: none.
  std::string unprotected = {};
};

// Connects all processes; every process calls it. If a host has no shared memory, all processes use TCP (or MPI),
// unless shared memory was requested. `mpi`: MPI started the processes. Throws Error if the requested transport is not
// available or cannot protect the data as requested, and if processes have different numbers of lanes or different
// protection; and as the Comms do.
DataPlane connect(Control& control, const std::vector<ProcessFacts>& facts, const distributed::Options& options,
                  bool mpi);

}  // namespace lockstep
