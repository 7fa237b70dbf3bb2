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
#include "base/runtime_settings.h"
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

// ProcessFacts as text has eight lines: host, address, lanes, devices, platform, cpus, mpi, data security.
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
  LinkSecurity security = LinkSecurity::plain;  // of connections over TCP

  int process() const { return control.process_id(); }
  int first_lane() const { return process() * lanes_per_process; }
  int lanes() const { return static_cast<int>(facts.size()) * lanes_per_process; }
  std::chrono::nanoseconds timeout() const { return options.initialization_timeout; }
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

// The shared memory of a host's lanes.
struct SharedMemory {
  std::shared_ptr<detail::Segment> segment = {};  // of this host; null: it has one process, or a host failed
  std::string error = {};                         // why a host has none; empty: all have. Equal in all processes
};

// Runs a step of one process and returns its result; or, as `error`, why it failed, naming the process.
struct StepResult {
  std::string value, error;
};
StepResult try_step(const JobLanes& job, const std::function<std::string()>& step) {
  const auto failed = [&](const std::exception& error) {
    const Peer& self = job.control.peers()[static_cast<size_t>(job.process())];
    return StepResult{"", fmt::format("{}: {}", process_label(job.process(), self.host, self.pid), error.what())};
  };
  try {
    return {step(), ""};
  } catch (const IoError& error) {
    return failed(error);
  } catch (const OutOfMemory& error) {
    return failed(error);
  }
}

// A value of the job by which a process tells others the result of its step: `+` and the value, or `-` and the error.
void publish(const JobLanes& job, const std::string& key, const StepResult& result) {
  job.control.set(key, result.error.empty() ? "+" + result.value : "-" + result.error);
}
StepResult published(const JobLanes& job, const std::string& key) {
  const std::string text = job.control.get(key, job.timeout());
  return text.starts_with('+') ? StepResult{text.substr(1), ""} : StepResult{"", text.substr(!text.empty())};
}

// Allocates the memory of this process's host, or opens it, and tells all processes of the job whether all processes of
// the host have it.
std::shared_ptr<detail::Segment> share_on_host(const JobLanes& job, const Host& host) {
  const std::string prefix = fmt::format("data plane/shared memory/{}/", host.processes[0]);
  std::shared_ptr<detail::Segment> segment;
  if (host.processes[0] != job.process()) {
    const StepResult address = published(job, prefix + "address");
    if (!address.error.empty()) return nullptr;
    publish(job, fmt::format("{}{}", prefix, job.process()), try_step(job, [&] {
              segment = open_shared_memory(address.value);
              return std::string();
            }));
    return segment;
  }
  StepResult result = try_step(job, [&] {
    segment = create_shared_memory(static_cast<int>(host.lanes(job).size()));
    return address_of(*segment);
  });
  publish(job, prefix + "address", result);
  for (size_t i = 1; i < host.processes.size() && result.error.empty(); ++i)
    result = published(job, fmt::format("{}{}", prefix, host.processes[i]));
  publish(job, prefix + "result", result);
  return segment;
}

// All processes of the job make the same choice: shared memory if all hosts have it.
SharedMemory reserve(const JobLanes& job, const std::vector<Host>& hosts) {
  SharedMemory out;
  for (const Host& host : hosts)
    if (host.processes.size() > 1 && std::ranges::find(host.processes, job.process()) != host.processes.end())
      out.segment = share_on_host(job, host);
  for (const Host& host : hosts)
    if (host.processes.size() > 1 && out.error.empty())
      out.error = published(job, fmt::format("data plane/shared memory/{}/result", host.processes[0])).error;
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
      const std::vector<int> lanes = host.lanes(job);
      const auto first = std::ranges::find(lanes, job.first_lane()) - lanes.begin();
      return shared_memory_comm({.memory = shared.segment,
                                 .rank = static_cast<int>(first) + local_lane,
                                 .size = static_cast<int>(lanes.size()),
                                 .timeout = job.timeout()});
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
          ports = parse_port_range(job.options.data_ports, "connect: data_ports"), timeout = job.timeout(),
          security = job.security](int own, const std::vector<int>& lanes, const std::string& key) {
    return tcp_comm({.store = control,
                     .prefix = "data plane/tcp/" + key,
                     .rank = static_cast<int>(std::find(lanes.begin(), lanes.end(), own) - lanes.begin()),
                     .size = static_cast<int>(lanes.size()),
                     .address = address,
                     .ports = ports,
                     .timeout = timeout,
                     .security = security});
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

// The protection of connections over TCP, equal in all processes. Data that stays on one host needs none.
LinkSecurity agreed_security(const std::vector<ProcessFacts>& facts, size_t hosts) {
  const auto meant = [&](const ProcessFacts& each) {
    return link_security_from(each.data_security).value_or(hosts > 1 ? LinkSecurity::encrypted : LinkSecurity::plain);
  };
  for (size_t p = 1; p < facts.size(); ++p)
    if (meant(facts[p]) != meant(facts[0]))
      throw_error(
          "initialize: process 0 has data_security {} and process {} has {}; give all processes the same "
          "--data-security (LOCKSTEP_DATA_SECURITY)",
          facts[0].data_security, p, facts[p].data_security);
  return meant(facts[0]);
}

// Between hosts, `carrier` (MPI, or NCCL between GPUs) carries data that Lockstep cannot protect. Returns a note for
// the default; throws Error if protection was requested.
std::string note_unprotected(const JobLanes& job, std::string_view carrier, std::string_view remedy) {
  const std::string& wanted = job.options.data_security;
  if (wanted == "plain") return "";
  if (wanted != "auto")
    throw_error(
        "initialize: data_security is {}, but {} carries data between hosts, which Lockstep can neither encrypt nor "
        "sign; use {}, or --data-security plain",
        wanted, carrier, remedy);
  return fmt::format(
      "{} carries data between hosts, neither encrypted nor signed; use {} to encrypt it, or --data-security plain if "
      "you trust the network",
      carrier, remedy);
}

bool is_loopback(const std::string& address) { return address.rfind("127.", 0) == 0 || address == "::1"; }

}  // namespace

std::string to_text(const ProcessFacts& facts) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", facts.host, facts.address, facts.lanes, facts.devices,
                     facts.platform, facts.cpus, static_cast<int>(facts.mpi), facts.data_security);
}

ProcessFacts process_facts_from(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  LOCKSTEP_CHECK(lines.size() == 8, "malformed process facts: {}", text);
  return {lines[0], lines[1], number_of(lines[2]), number_of(lines[3]), lines[4], lines[5], lines[6] == "1", lines[7]};
}

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (const auto test = environment_variable("LOCKSTEP_TEST_HOST")) boot += "/" + *test;
  // Containers have a network namespace of their own, or a mount of /dev/shm.
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

namespace {

DataPlane connect_lanes(const JobLanes& job, bool mpi) {
  const std::vector<Host> hosts = hosts_of(job.facts);
  const std::string& wanted = job.options.collectives;
  const auto note_mpi = [&] {
    return hosts.size() > 1 ? note_unprotected(job, "MPI", "--collectives tcp") : std::string();
  };
  if (wanted == "tcp") return {flat(job, over_tcp(job)), "TCP"};
  if (wanted == "mpi") {
    if (!mpi)
      throw_error(
          "initialize: collectives is mpi, but MPI did not start the processes; start them with mpirun or srun "
          "--mpi=pmix, or use auto, shared or tcp");
    const std::string note = note_mpi();
    return {hierarchical(job, one_process_per_host(job), over_mpi(job)), "MPI", note};
  }
  if (wanted == "shared" && hosts.size() > 1)
    throw_error("initialize: collectives is shared, but the processes run on {} hosts; use auto, tcp or mpi",
                hosts.size());
  const SharedMemory shared = reserve(job, hosts);
  if (wanted == "shared" && !shared.error.empty())
    throw_error("initialize: collectives is shared, but shared memory is not available: {}", shared.error);
  // All processes must choose the same, and MPI may be missing on some hosts.
  const bool by_mpi = mpi && std::ranges::all_of(job.facts, &ProcessFacts::mpi);
  const std::string note = by_mpi ? note_mpi() : "";
  if (!shared.error.empty()) {
    DataPlane plane = without_shared_memory(job, shared.error, by_mpi);
    plane.unprotected = note;
    return plane;
  }
  if (hosts.size() == 1) return {connect_host(job, hosts[0], shared), "shared memory"};
  return {hierarchical(job, hosts, by_mpi ? over_mpi(job) : over_tcp(job), shared),
          fmt::format("shared memory on each of {} hosts, {} between them", hosts.size(), by_mpi ? "MPI" : "TCP"),
          note};
}

}  // namespace

DataPlane connect(Control& control, const std::vector<ProcessFacts>& facts, const distributed::Options& options,
                  bool mpi) {
  for (size_t p = 1; p < facts.size(); ++p)
    if (facts[p].lanes != facts[0].lanes)
      throw_error("initialize: process 0 has {} and process {} has {}; {}", counted(facts[0].lanes, "lane"), p,
                  counted(facts[p].lanes, "lane"),
                  facts[0].platform == "cuda" ? "give all processes the same number of GPUs and devices"
                                              : "give all processes the same LOCKSTEP_CPU_LANES");
  const size_t hosts = hosts_of(facts).size();
  const JobLanes job{control, options, facts, facts[0].lanes, agreed_security(facts, hosts)};
  std::string nccl;
  if (hosts > 1 && facts[0].platform == "cuda" && detail::runtime_option(&RuntimeOptions::nccl))
    nccl = note_unprotected(job, "NCCL", "--no-nccl");
  DataPlane plane = connect_lanes(job, mpi);
  if (!nccl.empty()) plane.unprotected = nccl;
  for (const std::unique_ptr<Comm>& lane : plane.lanes) lane->set_timeout(options.first_collective_timeout);
  return plane;
}

}  // namespace lockstep
