// The memory of a process as the system counts it.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace lockstep {

// Bytes of memory that a process has; `pid` 0: this one.
inline int64_t resident_bytes(pid_t pid = 0) {
  std::ifstream file("/proc/" + (pid == 0 ? std::string("self") : std::to_string(pid)) + "/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// The most that a process has had so far.
inline int64_t peak_resident_bytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmHWM:")) return 1024 * std::stoll(line.substr(6));
  return 0;
}

}  // namespace lockstep
