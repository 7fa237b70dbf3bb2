#include "cluster/data_plane.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <thread>

#include "base/check.h"
#include "base/names.h"
#include "comm/shared/shared_memory.h"
#ifdef LOCKSTEP_WITH_GLOO
#include "comm/gloo/gloo.h"
#endif

namespace lockstep {
namespace {

// Line by line: host, address, lanes, devices.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

int number_of(const std::string& line) {
  int n = 0;
  std::from_chars(line.data(), line.data() + line.size(), n);
  return n;
}

// The lanes of all processes.
struct Lanes {
  std::vector<ProcessFacts> facts;
  int here = 1;   // of each process
  int first = 0;  // of this one
  int all() const { return static_cast<int>(facts.size()) * here; }
};

// make(lane of this process) for all of them at once: each waits for the others.
std::vector<std::unique_ptr<Comm>> for_each_lane(const Lanes& lanes,
                                                 const std::function<std::unique_ptr<Comm>(int lane)>& make) {
  std::vector<std::unique_ptr<Comm>> comms(static_cast<size_t>(lanes.here));
  std::vector<std::exception_ptr> failures(comms.size());
  std::vector<std::thread> threads;
  const auto run = [&](size_t i) {
    try {
      comms[i] = make(lanes.first + static_cast<int>(i));
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  for (size_t i = 1; i < comms.size(); ++i) threads.emplace_back(run, i);
  run(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return comms;
}

std::vector<std::unique_ptr<Comm>> shared_lanes(Control& control, const Lanes& lanes,
                                                const distributed::Options& options) {
  // Whoever knows the key of the segment is in; the coordinator keeps it among the processes of the job.
  const std::string key = control.get("data plane/segment", options.initialization_timeout);
  return for_each_lane(lanes, [&](int lane) {
    return shared_memory_comm(
        {.key = key, .rank = lane, .size = lanes.all(), .timeout = options.first_collective_timeout});
  });
}

std::vector<std::unique_ptr<Comm>> gloo_lanes([[maybe_unused]] Control& control, [[maybe_unused]] const Lanes& lanes,
                                              [[maybe_unused]] const distributed::Options& options) {
#ifdef LOCKSTEP_WITH_GLOO
  const ProcessFacts& own = lanes.facts[static_cast<size_t>(control.process_id())];
  return for_each_lane(lanes, [&](int lane) {
    return gloo_comm({.store = control,
                      .prefix = "data plane/gloo",
                      .rank = lane,
                      .size = lanes.all(),
                      .address = own.address,
                      .timeout = options.first_collective_timeout});
  });
#else
  throw_error("initialize: collectives over Gloo are not built in; install libgloo-dev and build again");
#endif
}

}  // namespace

std::string to_text(const ProcessFacts& facts) {
  return fmt::format("{}\n{}\n{}\n{}\n", facts.host, facts.address, facts.lanes, facts.devices);
}

ProcessFacts process_facts_from(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  LOCKSTEP_CHECK(lines.size() == 4, "facts of a process: {}", text);
  return {lines[0], lines[1], number_of(lines[2]), number_of(lines[3])};
}

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat memory {};
  if (stat("/dev/shm", &memory) != 0) return fmt::format("{}/{}", boot, getpid());  // nothing to share
  return fmt::format("{}/{}/{}/{}", boot, memory.st_dev, memory.st_ino, getuid());
}

std::vector<ProcessFacts> exchange_facts(Control& control, const ProcessFacts& own, std::chrono::nanoseconds timeout) {
  control.set(fmt::format("process/{}", control.process_id()), to_text(own));
  std::vector<ProcessFacts> facts;
  for (int p = 0; p < control.process_count(); ++p)
    facts.push_back(process_facts_from(control.get(fmt::format("process/{}", p), timeout)));
  return facts;
}

DataPlane connect(Control& control, const std::vector<ProcessFacts>& facts, const distributed::Options& options,
                  [[maybe_unused]] bool mpi) {
  for (size_t p = 1; p < facts.size(); ++p)
    if (facts[p].lanes != facts[0].lanes)
      throw_error("initialize: process 0 has {} and process {} has {}; give all of them the same LOCKSTEP_CPU_LANES",
                  counted(facts[0].lanes, "lane"), p, counted(facts[p].lanes, "lane"));
  const Lanes lanes{facts, facts[0].lanes, facts[0].lanes * control.process_id()};
  const bool one_host = std::all_of(facts.begin(), facts.end(), [&](const auto& f) { return f.host == facts[0].host; });
  const std::string& wanted = options.collectives;
  if (wanted == "shared" && !one_host)
    throw_error("initialize: collectives through shared memory need all processes on one host; use auto, gloo or mpi");
  if (wanted == "shared" || (wanted == "auto" && one_host))
    return {shared_lanes(control, lanes, options), "shared memory"};
  return {gloo_lanes(control, lanes, options), "Gloo"};
}

}  // namespace lockstep
