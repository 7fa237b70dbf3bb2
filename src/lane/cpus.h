// The CPUs of this process: where they are, how the processes of a host divide them, and how many threads compute on
// them. A CPU is a hardware thread, as in Linux. Safe from any thread.
//
// Each thread has its own affinity mask and passes it on to the threads that it starts. So a process that binds the
// thread that calls initialize() binds the pools that are made later.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

struct CpuPlace {
  int node = 0;     // NUMA node
  int package = 0;  // socket
  int core = 0;     // CPUs of one core of a package are SMT siblings
  int cpu = 0;

  auto operator<=>(const CpuPlace&) const = default;
};

// The CPUs in the affinity mask of the calling thread.
std::vector<int> affinity_cpus();

// Their places according to sysfs. A CPU whose place is not known is a core of its own, on node and package 0.
std::vector<CpuPlace> cpu_places(const std::vector<int>& cpus, const std::string& folder = "/sys/devices/system/cpu");

// Splits CPUs into n contiguous parts of nearly equal size, in the order of their places. A core is divided only if there
// are fewer cores than parts. All parts are empty if there are fewer CPUs than parts.
std::vector<std::vector<int>> split_cpus(std::vector<CpuPlace> places, int n);

// "0-3,8".
std::string cpu_list(const std::vector<int>& cpus);

// CPUs that this process could use if no affinity mask bound it: those that the kernel and the cgroup allow.
int unbound_cpus();

// What one of several processes with the same CPUs uses.
struct CpuShare {
  std::vector<int> cpus = {};  // to bind its threads to; empty: they stay unbound
  int threads = 0;             // that compute; 0: one for each CPU

  bool operator==(const CpuShare&) const = default;
};

// The share of process `index` of `count`, which have the same CPUs. `available`: the result of available_cpus().
// A cgroup's quota below the number of CPUs does not say which ones, so then the processes stay unbound.
CpuShare share_cpus(const std::vector<CpuPlace>& places, int available, int index, int count);

// Applies a share to the calling thread, the threads that it starts from now on, and compute_threads() of the current
// runtime. The destructor undoes this for the same thread, from any thread.
class ScopedCpuShare {
 public:
  explicit ScopedCpuShare(const CpuShare& share);
  ~ScopedCpuShare();
  ScopedCpuShare(const ScopedCpuShare&) = delete;
  ScopedCpuShare& operator=(const ScopedCpuShare&) = delete;

 private:
  const std::shared_ptr<std::atomic<int>> threads_;
  int thread_ = 0;
  std::vector<int> before_;  // empty: unchanged
};

// Whether the current runtime has a ScopedCpuShare of more than the defaults.
bool has_cpu_share();

// The number of threads that compute on the CPU in the current runtime: RuntimeOptions::cpu_threads if it is set, else
// those of the ScopedCpuShare, else available_cpus().
int compute_threads();

}  // namespace lockstep
