// BlameReport: the joint analysis of the flight records of several processes (cluster/flight.h). It finds the processes
// that are missing in a collective in which others wait, and how late each process was. Clocks of different hosts are
// aligned: collectives in which all wait for all are assumed to end at the same time everywhere. Plain values; the
// function is pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/flight.h"

namespace lockstep {

struct BlameReport {
  // One collective of a group.
  struct Collective {
    std::string group;
    std::vector<int> lanes;
    int64_t sequence = 0;
    std::string operation, dtype;
    int64_t bytes = 0, step = 0;
  };
  // The last known collective of a lane.
  struct LaneState {
    int lane = 0;
    Collective op;
    FlightRecord::Outcome outcome = FlightRecord::Outcome::in_flight;
    bool waiting = false;     // at the time of the dump
    int64_t nanoseconds = 0;  // time spent waiting, or since the collective ended
  };
  struct Process {
    bool dumped = false;  // otherwise the other members are unset
    std::string host, reason;
    int64_t pid = 0, time = 0, step = 0;  // time: by its own clock
    // Added to its times to align its clock, with the uncertainty; nullopt: its clock could not be compared.
    int64_t offset = 0;
    std::optional<int64_t> uncertainty;
    std::vector<LaneState> lanes;  // lanes with at least one record
  };
  // A collective in which lanes wait.
  struct StuckCollective {
    struct Waiter {
      int lane = 0;
      int64_t nanoseconds = 0;
    };
    Collective op;
    std::vector<Waiter> waiting;
    std::vector<int> missing;  // lanes that have not started it
    std::vector<int> unknown;  // lanes of processes without a dump
  };
  // How late a process was. Covers the collectives that it started last, while others waited; each counts with its
  // longest wait.
  struct Lateness {
    int64_t times = 0;               // number of these collectives
    int64_t total = 0, longest = 0;  // nanoseconds
  };
  struct Wait {
    Collective op;
    int last = 0;  // lane
    int64_t nanoseconds = 0;
  };

  std::string job;
  int lanes = 1;  // per process
  std::vector<Process> processes;
  std::vector<StuckCollective> stuck;  // the first stuck collective of each group
  std::vector<int> culprits;           // processes that others wait for and that do not wait themselves
  int64_t compared = 0;                // collectives that all dumped members have started
  std::map<int, Lateness> late;        // by process, for those with a dump
  std::vector<Wait> worst;             // the longest waits, at most five

  int process_of(int lane) const { return lane / lanes; }
};

// Throws Error if `dumps` is empty, mixes several jobs, or contains two dumps of one process.
BlameReport blame(const std::vector<FlightDump>& dumps);

}  // namespace lockstep
