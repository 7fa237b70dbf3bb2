#include "lane/memory.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

namespace lockstep {

namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

// The path of this process's cgroup ("/user.slice/..."): in the unified hierarchy (v2) if `controller` is empty, else
// in the hierarchy of that controller (v1).
std::string cgroup_path(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    // The line of the unified hierarchy has an empty list of controllers.
    if (controller.empty() ? names == ",," : names.find(fmt::format(",{},", controller)) != std::string::npos)
      return line.substr(second + 1);
  }
  return "/";
}

// Calls read(file) for the named file of the process's cgroup and of every cgroup above it: the lowest limit applies.
template <class Read>
void for_each_cgroup_file(const std::string& root, std::string path, const std::string& name, Read read) {
  for (;;) {
    if (std::ifstream file(root + path + "/" + name); file) read(file);
    if (path.empty() || path == "/") return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

int64_t find_machine_memory() {
  int64_t limit = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const auto lower = [&](std::ifstream& file) {
    // "max" does not parse as a number and leaves the limit alone.
    if (int64_t value = 0; file >> value && value > 0) limit = std::min(limit, value);
  };
  for_each_cgroup_file("/sys/fs/cgroup", cgroup_path(""), "memory.max", lower);
  for_each_cgroup_file("/sys/fs/cgroup/memory", cgroup_path("memory"), "memory.limit_in_bytes", lower);
  return limit;
}

}  // namespace

void* system_allocate(int64_t bytes) {
  const bool huge = bytes >= kHugePage;
  const int64_t alignment = huge ? kHugePage : kAlignment;
  if (bytes > std::numeric_limits<int64_t>::max() - alignment) return nullptr;
  void* memory = nullptr;
  if (posix_memalign(&memory, static_cast<size_t>(alignment), static_cast<size_t>(bytes)) != 0) return nullptr;
  if (huge) madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return memory;
}

void system_free(void* memory) { std::free(memory); }

int64_t machine_memory() {
  static const int64_t limit = find_machine_memory();
  return limit;
}

int available_cpus() {
  int cpus = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  // 8192 CPUs: the mask must be at least as large as the kernel's.
  if (cpu_set_t* set = CPU_ALLOC(8192)) {
    const size_t size = CPU_ALLOC_SIZE(8192);
    if (sched_getaffinity(0, size, set) == 0) cpus = std::max(1, CPU_COUNT_S(size, set));
    CPU_FREE(set);
  }
  const auto lower = [&](double quota, double period) {
    if (quota > 0 && period > 0) cpus = std::clamp(static_cast<int>((quota + period - 1) / period), 1, cpus);
  };
  for_each_cgroup_file("/sys/fs/cgroup", cgroup_path(""), "cpu.max", [&](std::ifstream& file) {
    if (double quota = 0, period = 0; file >> quota >> period) lower(quota, period);
  });
  for_each_cgroup_file("/sys/fs/cgroup/cpu", cgroup_path("cpu"), "cpu.cfs_quota_us", [&](std::ifstream& file) {
    // Assumes the default period of 100 ms; another period is rare.
    if (double quota = 0; file >> quota) lower(quota, 100000);
  });
  return cpus;
}

}  // namespace lockstep
