// Host lists: Slurm's short form, and those of `lockstep launch --hosts` and --hostfile. The first byte selects one.
#include "cluster/host_list.h"

#include "fuzz/fuzz.h"
#include "jobs/hosts.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text = fuzz::text_of(data + 1, size - 1);
  if (data[0] % 3 == 0) {
    std::vector<std::string> names;
    if (!fuzz::accepts([&] { names = detail::expand_host_list(text, "SLURM_JOB_NODELIST"); })) return 0;
    fuzz::require(!names.empty() && names.size() <= 65536, "a list has 1 to 65536 hosts");
    return 0;
  }
  std::vector<HostSlots> hosts;
  const bool read = fuzz::accepts([&] {
    hosts = data[0] % 3 == 1 ? parse_hosts(text, "node1.example.org") : parse_host_file(text, "hosts", "node1");
  });
  if (!read) return 0;
  int64_t slots = 0;
  for (const HostSlots& host : hosts) {
    fuzz::require(host.slots >= 1 && host.slots <= kMaxProcesses, "a host has 1 to 1024 slots");
    slots += host.slots;
  }
  const int processes = static_cast<int>(std::min<int64_t>(slots, kMaxProcesses));
  fuzz::require(assign_hosts(hosts, processes).size() == static_cast<size_t>(processes), "every process has a host");
  return 0;
}
