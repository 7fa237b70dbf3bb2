// Variables of launchers (Slurm, MPI, torchrun, Kubernetes), one line NAME=value each; after a 0 byte the text of
// /etc/hosts.
#include "cluster/detect.h"

#include "fuzz/fuzz.h"
#include "sharding/device_table.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::string> parts = fuzz::parts_of(fuzz::text_of(data, size), '\0', 2);
  detail::LaunchEnvironment here{.environment = {}, .host_name = "myjob-1", .full_host_name = ""};
  if (parts.size() > 1) here.full_host_name = detail::full_name_in_hosts(parts[1], here.host_name);
  for (const std::string& line : fuzz::parts_of(parts[0], '\n', 64))
    if (const size_t equals = line.find('='); equals != line.npos)
      here.environment[line.substr(0, equals)] = line.substr(equals + 1);
  fuzz::accepts([&] {
    const detail::ClusterInfo info = detail::detect({}, here);
    fuzz::require(info.process_count >= 1 && info.process_id >= 0 && info.process_id < info.process_count,
                  "the process is one of those there are");
    detail::to_string(info);
  });
  fuzz::accepts([&] { detail::run_detectors({}, here); });
  fuzz::accepts([&] { detail::detect_cpu_devices(here.environment); });
  return 0;
}
