#include "cluster/data_plane.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "base/names.h"
#include "base/os/environment.h"
#include "base/start_thread.h"
#include "cluster/address.h"
#include "cluster/coordinator_host.h"
#include "cluster/mpi_job.h"
#include "cluster/naming.h"
#include "comm/hierarchy.h"
#include "comm/in_process.h"
#include "comm/shared/shared_memory.h"
#include "comm/tcp/tcp.h"

namespace lockstep {
namespace {

// ProcessFacts as text has seven lines: host, address, lanes, devices, platform, cpus, mpi.
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

using Comms = std::vector<std::unique_ptr<Comm>>;

// The lanes of all processes, numbered process by process.
struct JobLanes {
  Control& control;
  const distributed::Options& options;
  const std::vector<ProcessFacts>& facts;
  int lanes_per_process = 1;

  int process() const { return control.process_id(); }
  int first_lane() const { return process() * lanes_per_process; }
  int lanes() const { return static_cast<int>(facts.size()) * lanes_per_process; }
  std::chrono::nanoseconds timeout() const { return options.first_collective_timeout; }
};

// Processes that can share memory.
struct Host {
  std::vector<int> processes;

  std::vector<int> lanes(const JobLanes& job) const {
    std::vector<int> out;
    for (const int process : processes)
      for (int i = 0; i < job.lanes_per_process; ++i) out.push_back(process * job.lanes_per_process + i);
    return out;
  }
};

// In the order of their first processes.
std::vector<Host> hosts_of(const std::vector<ProcessFacts>& facts) {
  std::vector<Host> hosts;
  std::map<std::string, size_t> known;
  for (size_t p = 0; p < facts.size(); ++p) {
    const auto [found, is_new] = known.emplace(facts[p].host, hosts.size());
    if (is_new) hosts.emplace_back();
    hosts[found->second].processes.push_back(static_cast<int>(p));
  }
  return hosts;
}
std::vector<Host> one_process_per_host(const JobLanes& job) {
  std::vector<Host> hosts;
  for (int p = 0; p < static_cast<int>(job.facts.size()); ++p) hosts.push_back({{p}});
  return hosts;
}

// Calls make(i) concurrently for all lanes of this process, because each waits for the others.
Comms for_each_lane(const JobLanes& job, const std::function<std::unique_ptr<Comm>(int local_lane)>& make) {
  Comms comms(static_cast<size_t>(job.lanes_per_process));
  std::vector<std::exception_ptr> failures(comms.size());
  std::vector<std::thread> threads;
  const auto run = [&](size_t i) {
    try {
      comms[i] = make(static_cast<int>(i));
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  for (size_t i = 1; i < comms.size(); ++i) threads.push_back(start_thread([&run, i] { run(i); }));
  run(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return comms;
}

// The shared memory of a host's lanes. Every process that knows its key can attach; the coordinator gives the key only
// to processes of the job.
struct SharedMemory {
  std::shared_ptr<detail::Segment> segment = {};  // only in the first process of a host
  std::string error = {};                         // why a host has none; empty: all have. Equal in all processes
};

SharedMemoryOptions shared_options(const JobLanes& job, const Host& host, int local_lane) {
  const std::vector<int> lanes = host.lanes(job);
  const auto first = std::find(lanes.begin(), lanes.end(), job.first_lane()) - lanes.begin();
  return {.key = fmt::format("{}-{}", job.control.get("data plane/segment", job.timeout()), lanes[0]),
          .rank = static_cast<int>(first) + local_lane,
          .size = static_cast<int>(lanes.size()),
          .timeout = job.timeout()};
}

// The first process of every host allocates the memory and publishes the result, so that all processes of the job make
// the same choice.
SharedMemory reserve(const JobLanes& job, const std::vector<Host>& hosts) {
  constexpr const char* kReserved = "reserved";
  SharedMemory out;
  const auto key = [](const Host& host) { return fmt::format("data plane/shared memory/{}", host.processes[0]); };
  for (const Host& host : hosts) {
    if (host.processes.size() == 1 || host.processes[0] != job.process()) continue;
    std::string result = kReserved;
    const auto fail = [&](const std::exception& error) {
      const Peer& self = job.control.peers()[static_cast<size_t>(job.process())];
      result = fmt::format("{}: {}", process_label(job.process(), self.host, self.pid), error.what());
    };
    try {
      out.segment = reserve_shared_memory(shared_options(job, host, 0));
    } catch (const IoError& error) {
      fail(error);
    } catch (const OutOfMemory& error) {
      fail(error);
    }
    job.control.set(key(host), result);
  }
  for (const Host& host : hosts) {
    if (host.processes.size() == 1) continue;
    if (const std::string result = job.control.get(key(host), job.timeout()); result != kReserved)
      out.error = out.error.empty() ? result : out.error;
  }
  return out;
}

// Connects the lanes of one host. Failing to map reserved memory would fail again after a restart, so it is an Error.
Comms connect_host(const JobLanes& job, const Host& host, const SharedMemory& shared) {
  if (host.processes.size() == 1) {
    Comms comms = in_process_comms(job.lanes_per_process);
    for (const auto& comm : comms) comm->set_timeout(job.timeout());
    return comms;
  }
  try {
    return for_each_lane(job, [&](int local_lane) {
      SharedMemoryOptions options = shared_options(job, host, local_lane);
      if (options.rank == 0) options.segment = shared.segment;
      return shared_memory_comm(options);
    });
  } catch (const IoError& error) {
    throw Error(error.what());
  } catch (const OutOfMemory& error) {
    throw Error(error.what());
  }
}

// Connects lane `own` to a group of lanes that are all on different hosts.
using Connect = std::function<std::unique_ptr<Comm>(int own, const std::vector<int>& lanes, const std::string& key)>;

// The secrets of the groups are exchanged through the coordinator, so only processes of the job know them.
Connect over_tcp(const JobLanes& job) {
  return [&control = job.control, address = job.facts[static_cast<size_t>(job.process())].address,
          ports = parse_port_range(job.options.data_ports, "connect: data_ports"),
          timeout = job.timeout()](int own, const std::vector<int>& lanes, const std::string& key) {
    return tcp_comm({.store = control,
                     .prefix = "data plane/tcp/" + key,
                     .rank = static_cast<int>(std::find(lanes.begin(), lanes.end(), own) - lanes.begin()),
                     .size = static_cast<int>(lanes.size()),
                     .address = address,
                     .ports = ports,
                     .timeout = timeout});
  };
}

Connect over_mpi(const JobLanes& job) {
  return
      [count = static_cast<int>(job.facts.size()), process = job.process(), lanes_per_process = job.lanes_per_process,
       timeout = job.timeout()](int, const std::vector<int>& lanes, const std::string& key) {
        std::vector<int> processes;
        for (const int lane : lanes) processes.push_back(lane / lanes_per_process);
        return mpi_group(process, count, processes, key, timeout);
      };
}

// All lanes in one group, without a hierarchy of hosts.
Comms flat(const JobLanes& job, const Connect& connect) {
  std::vector<int> all(static_cast<size_t>(job.lanes()));
  std::iota(all.begin(), all.end(), 0);
  return for_each_lane(job, [&](int local_lane) { return connect(job.first_lane() + local_lane, all, "flat"); });
}

Comms hierarchical(const JobLanes& job, const std::vector<Host>& hosts, const Connect& connect,
                   const SharedMemory& shared = {}) {
  const bool one_lane_per_host = std::all_of(hosts.begin(), hosts.end(), [&](const Host& host) {
    return job.lanes_per_process == 1 && host.processes.size() == 1;
  });
  if (one_lane_per_host) return flat(job, connect);
  const auto own = std::find_if(hosts.begin(), hosts.end(), [&](const Host& host) {
    return std::find(host.processes.begin(), host.processes.end(), job.process()) != host.processes.end();
  });
  Comms inner = connect_host(job, *own, shared);
  std::vector<std::vector<int>> lanes;
  for (const Host& host : hosts) lanes.push_back(host.lanes(job));
  return for_each_lane(job, [&](int local_lane) {
    return hierarchical_comm(
        {.hosts = lanes,
         .host = static_cast<int>(own - hosts.begin()),
         .inner = std::move(inner[static_cast<size_t>(local_lane)]),
         .connect = [connect, lane = job.first_lane() + local_lane](
                        const std::vector<int>& ranks, const std::string& key) { return connect(lane, ranks, key); },
         .timeout = job.timeout()});
  });
}

// The data plane if a host has no shared memory.
DataPlane without_shared_memory(const JobLanes& job, const std::string& error, bool by_mpi) {
  const char* const other = by_mpi ? "MPI" : "TCP";
  if (job.process() == 0)
    log_to_stderr(
        fmt::format("processes on one host use {} instead of shared memory, which is slower: {}", other, error));
  return {by_mpi ? hierarchical(job, one_process_per_host(job), over_mpi(job)) : flat(job, over_tcp(job)),
          fmt::format("{} (no shared memory)", other)};
}

bool is_loopback(const std::string& address) { return address.rfind("127.", 0) == 0 || address == "::1"; }

}  // namespace

std::string to_text(const ProcessFacts& facts) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n", facts.host, facts.address, facts.lanes, facts.devices,
                     facts.platform, facts.cpus, static_cast<int>(facts.mpi));
}

ProcessFacts process_facts_from(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  LOCKSTEP_CHECK(lines.size() == 7, "malformed process facts: {}", text);
  return {lines[0], lines[1], number_of(lines[2]), number_of(lines[3]), lines[4], lines[5], lines[6] == "1"};
}

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (const auto test = environment_variable("LOCKSTEP_TEST_HOST")) boot += "/" + *test;
  // Abstract Unix sockets belong to a network namespace. Containers may have separate /dev/shm mounts.
  struct stat network {
  }, memory{};
  if (stat("/proc/self/ns/net", &network) != 0) return fmt::format("{}/{}", boot, getpid());  // cannot share memory
  if (stat("/dev/shm", &memory) != 0) stat("/", &memory);
  return fmt::format("{}/{}/{}/{}/{}", boot, network.st_ino, memory.st_dev, memory.st_ino, getuid());
}

std::string own_address(const Control& control, const std::string& coordinator, const distributed::Options& options) {
  if (!options.network_interface.empty())
    return detail::choose_interfaces(options.network_interface, detail::list_interfaces()).front().address;
  if (coordinator.empty()) return detail::choose_interfaces("", detail::list_interfaces()).front().address;
  const auto timeout = options.initialization_timeout;
  const detail::Address there = detail::parse_address(coordinator, "the coordinator's address");
  const std::string address = control.process_id() == 0 ? "127.0.0.1" : detail::local_address_towards(there, timeout);
  if (!is_loopback(address)) return address;
  for (const Peer& peer : control.peers())
    if (!peer.address.empty() && !is_loopback(peer.address))
      return detail::local_address_towards({peer.address, there.port}, timeout);
  return address;
}

std::vector<ProcessFacts> exchange_facts(Control& control, const ProcessFacts& own, std::chrono::nanoseconds timeout,
                                         const std::string& name) {
  control.set(fmt::format("{}/{}", name, control.process_id()), to_text(own));
  std::vector<ProcessFacts> facts;
  for (int p = 0; p < control.process_count(); ++p)
    facts.push_back(process_facts_from(control.get(fmt::format("{}/{}", name, p), timeout)));
  for (size_t p = 1; p < facts.size(); ++p)
    if (facts[p].platform != facts[0].platform)
      throw_error(
          "initialize: process 0 uses {} and process {} uses {}; give all processes the same --platform "
          "(LOCKSTEP_PLATFORM), or each one a GPU",
          facts[0].platform, p, facts[p].platform);
  return facts;
}

LocalRank local_rank(const std::vector<ProcessFacts>& facts, int process) {
  LocalRank place{0, 0};
  for (size_t p = 0; p < facts.size(); ++p) {
    if (facts[p].host != facts[static_cast<size_t>(process)].host) continue;
    if (static_cast<int>(p) < process) ++place.id;
    ++place.count;
  }
  return place;
}

DataPlane connect(Control& control, const std::vector<ProcessFacts>& facts, const distributed::Options& options,
                  bool mpi) {
  for (size_t p = 1; p < facts.size(); ++p)
    if (facts[p].lanes != facts[0].lanes)
      throw_error("initialize: process 0 has {} and process {} has {}; {}", counted(facts[0].lanes, "lane"), p,
                  counted(facts[p].lanes, "lane"),
                  facts[0].platform == "cuda" ? "give all processes the same number of GPUs and devices"
                                              : "give all processes the same LOCKSTEP_CPU_LANES");
  const JobLanes job{control, options, facts, facts[0].lanes};
  const std::vector<Host> hosts = hosts_of(facts);
  const std::string& wanted = options.collectives;
  if (wanted == "tcp") return {flat(job, over_tcp(job)), "TCP"};
  if (wanted == "mpi") {
    if (!mpi)
      throw_error(
          "initialize: collectives is mpi, but MPI did not start the processes; start them with mpirun or srun "
          "--mpi=pmix, or use auto, shared or tcp");
    return {hierarchical(job, one_process_per_host(job), over_mpi(job)), "MPI"};
  }
  if (wanted == "shared" && hosts.size() > 1)
    throw_error("initialize: collectives is shared, but the processes run on {} hosts; use auto, tcp or mpi",
                hosts.size());
  const SharedMemory shared = reserve(job, hosts);
  if (wanted == "shared" && !shared.error.empty())
    throw_error("initialize: collectives is shared, but shared memory is not available: {}", shared.error);
  // All processes must choose the same, and MPI may be missing on some hosts.
  const bool by_mpi = mpi && std::ranges::all_of(facts, &ProcessFacts::mpi);
  if (!shared.error.empty()) return without_shared_memory(job, shared.error, by_mpi);
  if (hosts.size() == 1) return {connect_host(job, hosts[0], shared), "shared memory"};
  return {hierarchical(job, hosts, by_mpi ? over_mpi(job) : over_tcp(job), shared),
          fmt::format("shared memory on each of {} hosts, {} between them", hosts.size(), by_mpi ? "MPI" : "TCP")};
}

}  // namespace lockstep
