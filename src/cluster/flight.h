// FlightDump: what one process recorded of its operations with others (comm/recorder.h), as a file that
// `lockstep blame` reads; docs/reference/file-formats.md describes the format. Plain values; the functions are safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "comm/recorder.h"

namespace lockstep {

// The reason of a dump that somebody asked for; any other is a failure.
inline constexpr const char* kDumpRequested = "SIGUSR2";

// Of a dump that is read.
inline constexpr int64_t kMaxFlightBytes = int64_t{256} << 20;

struct FlightDump {
  // A lane of this process in a group; all numbers of lanes are among those of all processes.
  struct Group {
    std::string name;
    std::vector<int> lanes;
    int lane = 0;
    int64_t next = 0;  // number of the operation it has not begun yet
  };
  struct Record {
    int group = 0;  // in groups
    int64_t sequence = 0;
    std::string operation, dtype;
    int64_t elements = 0, bytes = 0, step = 0;
    // Nanoseconds since 1970 by this host's clock; 0: not yet.
    int64_t began = 0, waited = 0, ended = 0;
    FlightRecord::Outcome outcome = FlightRecord::Outcome::under_way;
  };

  std::string job;  // another one at every start
  int process = 0, processes = 1;
  int lanes = 1;      // of each process
  std::string host;   // its name
  std::string clock;  // the same where processes read the same clock
  int64_t pid = 0;
  int64_t time = 0;  // of the dump, as those of records
  std::string reason;
  int64_t step = 0;
  std::vector<Group> groups;
  std::vector<Record> records;  // lane by lane, oldest first
};

// Who writes a dump.
struct FlightOrigin {
  std::string job;
  int process = 0, processes = 1;
};

// What is recorded now.
FlightDump take_dump(const FlightRecorder& recorder, const FlightOrigin& origin, const std::string& reason);

std::string to_json(const FlightDump& dump);
// Throws Error, which names the path, for what is no whole dump.
FlightDump flight_dump_from(const std::string& json, const std::string& path);

// `lockstep_flight_3f9a0c21_2.json`.
std::string flight_file_name(const FlightDump& dump);
bool is_flight_file_name(const std::string& name);

}  // namespace lockstep
