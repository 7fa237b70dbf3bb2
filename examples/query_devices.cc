// Prints the local devices of this process and the devices of all processes.
#include <lockstep/distributed.h>

#include <cstdio>
#include <exception>

#include "flags.h"

using namespace lockstep;

std::string names(const std::vector<Device>& list) {
  std::string out;
  for (const Device& d : list)
    out += (out.empty() ? "" : ", ") + to_string(d.platform) + "(id=" + std::to_string(d.id) + ")";
  return "[" + out + "]";
}

int main(int argc, char** argv) try {
  const Flags flags(argc, argv, {{"devices", ""}});  // default: given by the environment, else 1
  if (!flags.text("devices").empty()) set_cpu_devices(flags.integer("devices"));
  distributed::initialize();  // a single process, unless the environment describes a cluster
  std::printf("# Local devices: [ %d ], %s\n", local_device_count(), names(local_devices()).c_str());
  std::printf("# Global devices:[ %d ], %s\n", device_count(), names(devices()).c_str());
  distributed::shutdown();
} catch (const std::exception& e) {
  std::fprintf(stderr, "query_devices: %s\n", e.what());
  return 1;
}
