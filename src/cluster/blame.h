// BlameReport: what the dumps of several processes (cluster/flight.h) say together: who is missing in an operation that
// others wait in, and who was late how often. Times of hosts with different clocks are moved so that operations in
// which all wait for all end at the same time everywhere. Plain values; the function is pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/flight.h"

namespace lockstep {

struct BlameReport {
  // One operation of all that take part.
  struct Collective {
    std::string group;
    std::vector<int> lanes;
    int64_t sequence = 0;
    std::string operation, dtype;
    int64_t bytes = 0, step = 0;
  };
  // What a lane was last seen at.
  struct LaneState {
    int lane = 0;
    Collective op;
    FlightRecord::Outcome outcome = FlightRecord::Outcome::under_way;
    bool waiting = false;     // when it was dumped
    int64_t nanoseconds = 0;  // how long it had been waiting, or since the end of the operation
  };
  struct Process {
    bool dumped = false;  // the rest is of the dump
    std::string host, reason;
    int64_t pid = 0, time = 0, step = 0;  // time: of its own clock
    // What was added to its times, and how far off that may be; none: its clock could not be compared.
    int64_t offset = 0;
    std::optional<int64_t> uncertainty;
    std::vector<LaneState> lanes;  // those that have done anything
  };
  // An operation that some wait in.
  struct StuckCollective {
    struct Waiter {
      int lane = 0;
      int64_t nanoseconds = 0;
    };
    Collective op;
    std::vector<Waiter> waiting;
    std::vector<int> missing;  // lanes that have not begun it
    std::vector<int> unknown;  // lanes of processes without a dump
  };
  // How late a process was, over the operations in which it came last and others waited for it, the longest wait each.
  struct Lateness {
    int64_t times = 0, total = 0, longest = 0;
  };
  struct Wait {
    Collective op;
    int last = 0;  // lane
    int64_t nanoseconds = 0;
  };

  std::string job;
  int lanes = 1;  // of each process
  std::vector<Process> processes;
  std::vector<StuckCollective> stuck;  // the first of each group
  std::vector<int> culprits;           // processes that others wait for and that wait for nobody
  int64_t compared = 0;                // operations that all dumped members have begun
  std::map<int, Lateness> late;        // by process: those with a dump
  std::vector<Wait> worst;             // the longest waits, five at most

  int process_of(int lane) const { return lane / lanes; }
};

// Throws Error when there is no dump, and when they are of different jobs or two of one process.
BlameReport blame(const std::vector<FlightDump>& dumps);

}  // namespace lockstep
