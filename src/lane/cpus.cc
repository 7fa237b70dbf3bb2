#include "lane/cpus.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/runtime_parts.h"
#include "base/runtime_settings.h"
#include "lane/memory.h"

namespace lockstep {
namespace {

constexpr size_t kMaxCpus = 16384;

class CpuMask {
 public:
  CpuMask() : set_(CPU_ALLOC(kMaxCpus)) {
    if (set_) CPU_ZERO_S(kBytes, set_);
  }
  ~CpuMask() { CPU_FREE(set_); }
  CpuMask(const CpuMask&) = delete;
  CpuMask& operator=(const CpuMask&) = delete;

  void add(int cpu) {
    if (set_) CPU_SET_S(static_cast<size_t>(cpu), kBytes, set_);
  }
  // False if the system refuses. Thread 0 is the calling one.
  bool read() { return set_ && ::sched_getaffinity(0, kBytes, set_) == 0; }
  bool apply(int thread) const { return set_ && ::sched_setaffinity(thread, kBytes, set_) == 0; }

  std::vector<int> cpus() const {
    std::vector<int> out;
    for (size_t i = 0; set_ && i < kMaxCpus; ++i)
      if (CPU_ISSET_S(i, kBytes, set_)) out.push_back(static_cast<int>(i));
    return out;
  }

 private:
  static constexpr size_t kBytes = kMaxCpus / 8;
  cpu_set_t* const set_;
};

bool bind_thread(int thread, const std::vector<int>& cpus) {
  CpuMask mask;
  for (const int cpu : cpus) mask.add(cpu);
  return mask.apply(thread);
}

// The N of the folder's entry nodeN; 0 if there is none.
int node_of(const std::string& folder) {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("node") && name.size() > 4 && name.size() < 10 &&
        name.find_first_not_of("0123456789", 4) == name.npos)
      return std::stoi(name.substr(4));
  }
  return 0;
}

// A part of the runtime: the threads of its ScopedCpuShare; 0: there is none. A share may outlive the part.
struct ThreadsOfShare {
  const std::shared_ptr<std::atomic<int>> count = std::make_shared<std::atomic<int>>(0);
};

}  // namespace

std::vector<int> affinity_cpus() {
  CpuMask mask;
  return mask.read() ? mask.cpus() : std::vector<int>();
}

std::vector<CpuPlace> cpu_places(const std::vector<int>& cpus, const std::string& folder) {
  std::vector<CpuPlace> places;
  for (const int cpu : cpus) {
    const std::string own = fmt::format("{}/cpu{}", folder, cpu);
    int package = 0, core = 0;
    const bool known = std::ifstream(own + "/topology/physical_package_id") >> package &&
                       std::ifstream(own + "/topology/core_id") >> core;
    places.push_back(known ? CpuPlace{node_of(own), package, core, cpu} : CpuPlace{0, 0, cpu, cpu});
  }
  return places;
}

std::vector<std::vector<int>> split_cpus(std::vector<CpuPlace> places, int n) {
  const auto parts = static_cast<size_t>(n);
  std::vector<std::vector<int>> out(parts);
  if (places.size() < parts) return out;
  std::ranges::sort(places);
  std::vector<std::vector<int>> units;  // cores
  for (size_t i = 0; i < places.size(); ++i) {
    const CpuPlace& own = places[i];
    const bool sibling = i > 0 && places[i - 1].node == own.node && places[i - 1].package == own.package &&
                         places[i - 1].core == own.core;
    if (!sibling) units.emplace_back();
    units.back().push_back(own.cpu);
  }
  if (units.size() < parts) {
    units.clear();
    for (const CpuPlace& each : places) units.push_back({each.cpu});
  }
  size_t at = 0;
  for (size_t i = 0; i < parts; ++i)
    for (const size_t end = at + units.size() / parts + (i < units.size() % parts ? 1 : 0); at < end; ++at)
      out[i].insert(out[i].end(), units[at].begin(), units[at].end());
  return out;
}

std::string cpu_list(const std::vector<int>& cpus) {
  std::string out;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    out += fmt::format("{}{}", out.empty() ? "" : ",", cpus[i]);
    if (last > i) out += fmt::format("-{}", cpus[last]);
    i = last + 1;
  }
  return out;
}

int unbound_cpus() {
  int cpus = 0;
  // The kernel reduces the mask of all CPUs to those that the thread may have.
  std::thread([&] {
    CpuMask all;
    for (size_t i = 0; i < kMaxCpus; ++i) all.add(static_cast<int>(i));
    all.apply(0);
    cpus = available_cpus();
  }).join();
  return cpus;
}

CpuShare share_cpus(const std::vector<CpuPlace>& places, int available, int index, int count) {
  if (count <= 1) return {};
  if (available < static_cast<int>(places.size()))
    return {.threads = std::max(1, available / count + (index < available % count ? 1 : 0))};
  const std::vector<std::vector<int>> parts = split_cpus(places, count);
  const std::vector<int>& own = parts[static_cast<size_t>(index)];
  return {.cpus = own, .threads = std::max(1, static_cast<int>(own.size()))};
}

ScopedCpuShare::ScopedCpuShare(const CpuShare& share) : threads_(detail::runtime_part<ThreadsOfShare>().count) {
  *threads_ = share.threads;
  if (share.cpus.empty()) return;
  thread_ = static_cast<int>(::syscall(SYS_gettid));
  std::vector<int> before = affinity_cpus();
  if (bind_thread(thread_, share.cpus)) before_ = std::move(before);
}

ScopedCpuShare::~ScopedCpuShare() {
  *threads_ = 0;
  if (!before_.empty()) bind_thread(thread_, before_);
}

bool has_cpu_share() { return *detail::runtime_part<ThreadsOfShare>().count > 0; }

int compute_threads() {
  if (const int64_t given = detail::runtime_option(&RuntimeOptions::cpu_threads); given > 0)
    return static_cast<int>(given);
  const int shared = *detail::runtime_part<ThreadsOfShare>().count;
  return shared > 0 ? shared : available_cpus();
}

}  // namespace lockstep
