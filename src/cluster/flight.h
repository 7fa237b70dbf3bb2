// FlightDump: a process's flight record (the last collectives of its lanes, see comm/recorder.h), as a JSON file that
// `lockstep blame` reads. docs/how-to/clusters.md describes the format. Plain values; the functions are thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "comm/recorder.h"

namespace lockstep {

// The reason of a dump requested by the user; any other reason is a failure.
inline constexpr const char* kDumpRequested = "SIGUSR2";

// Maximum size of a dump file.
inline constexpr int64_t kMaxFlightBytes = int64_t{256} << 20;

struct FlightDump {
  // A lane of this process in a group. Lanes are numbered over all processes.
  struct Group {
    std::string name;
    std::vector<int> lanes;
    int lane = 0;
    int64_t next = 0;  // sequence number of its next collective
  };
  struct Record {
    int group = 0;  // index in `groups`
    int64_t sequence = 0;
    std::string operation, dtype;
    int64_t elements = 0, bytes = 0, step = 0;
    // When the lane began the collective, began to wait for others, and ended. In ns since 1970 by this host's clock;
    // 0: not yet.
    int64_t began = 0, waited = 0, ended = 0;
    FlightRecord::Outcome outcome = FlightRecord::Outcome::in_flight;
  };

  std::string job;  // different for every start of a job
  int process = 0, processes = 1;
  int lanes = 1;      // per process
  std::string host;   // host name
  std::string clock;  // equal for processes that read the same clock
  int64_t pid = 0;
  int64_t time = 0;  // when the dump was taken, in ns since 1970
  std::string reason;
  int64_t step = 0;
  std::vector<Group> groups;
  std::vector<Record> records;  // lane by lane, oldest first
};

// The process that writes a dump.
struct FlightOrigin {
  std::string job;
  int process = 0, processes = 1;
};

// Takes a snapshot of the recorder.
FlightDump take_dump(const FlightRecorder& recorder, const FlightOrigin& origin, const std::string& reason);

std::string to_json(const FlightDump& dump);
// Throws Error, naming `path`, if the text is not a complete dump.
FlightDump flight_dump_from(const std::string& json, const std::string& path);

// `lockstep_flight_3f9a0c21_2.json`.
std::string flight_file_name(const FlightDump& dump);
bool is_flight_file_name(const std::string& name);

}  // namespace lockstep
