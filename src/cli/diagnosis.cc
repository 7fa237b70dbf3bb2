#include "cli/diagnosis.h"

#include <cblas.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <algorithm>

#include "base/file.h"
#include "base/names.h"
#include "cluster/address_auth.h"
#include "cluster/gpus.h"
#include "cluster/listen_addresses.h"
#include "cluster/port_owner.h"
#include "cluster/token.h"
#include "comm/shared/shared_memory.h"
#include "lane/lanes.h"
#include "lane/memory.h"
#include "lockstep/error.h"
#include "sharding/device_table.h"

namespace lockstep::cli {
namespace {

using detail::Address;
using detail::ClusterInfo;
using detail::LaunchEnvironment;
using detail::PortProbe;

#ifdef LOCKSTEP_WITH_GRPC
constexpr const char* kControlPlane = "gRPC";
#else
constexpr const char* kControlPlane = "";
#endif
#ifdef LOCKSTEP_WITH_MPI
constexpr const char* kMpi = "MPI";
#else
constexpr const char* kMpi = "";
#endif

#ifdef LOCKSTEP_WITH_CUDA
constexpr const char* kGpus = "CUDA";
#else
constexpr const char* kGpus = "";
#endif

#if defined(__clang__)
constexpr const char* kCompiler = "clang++ " __clang_version__;
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

// "a: b; c" as what is wrong and what to do about it.
Diagnosis::Problem problem_of(const std::string& message) {
  const size_t cut = message.find("; ");
  if (cut == message.npos) return {message, ""};
  return {message.substr(0, cut), message.substr(cut + 2)};
}

// Runs a check; what it throws is a problem, told once.
template <class F>
void attempt(Diagnosis& out, F check) {
  const auto add = [&](const Diagnosis::Problem& problem) {
    for (const Diagnosis::Problem& known : out.problems)
      if (known.what == problem.what && known.remedy == problem.remedy) return;
    out.problems.push_back(problem);
  };
  try {
    check();
  } catch (const Error& error) {
    add(problem_of(error.what()));
  } catch (const IoError& error) {
    add(problem_of(error.what()));
  }
}

void look_at_build(Diagnosis& out) {
  out.compiler = kCompiler;
  utsname system = {};
  if (::uname(&system) == 0) out.machine = system.machine;
  const std::string blas = openblas_get_config();  // "OpenBLAS 0.3.21 NO_LAPACKE ..."
  out.parts = {{"control plane", kControlPlane},
               {"collectives over TCP", "built in"},
               {"collectives over MPI", kMpi},
               {"NVIDIA GPUs", kGpus},
               {"matrix products", blas.substr(0, blas.find(' ', blas.find(' ') + 1))}};
}

int gpus_of_machine() {
  if (!FileSystem::real().exists("/dev/nvidiactl")) return 0;
  int count = 0;
  for (int i = 0; FileSystem::real().exists(fmt::format("/dev/nvidia{}", i)); ++i) ++count;
  return count;
}

void look_at_devices(const LaunchEnvironment& here, Diagnosis& out) {
  out.devices.cores = available_cpus();
  attempt(out, [&] { out.devices.cpu_devices = detail::detect_cpu_devices(here.environment); });
  attempt(out, [&] { out.devices.lanes = Lanes::local().count(); });
  out.devices.gpus_visible = detail::visible_gpus(here.environment, gpus_of_machine());
  if (out.devices.gpus_visible == 0 || !out.detection.chosen) return;
  const ClusterInfo& info = *out.detection.chosen;
  // What is wrong with the share of GPUs is good to know, and stops nothing: the process computes on the CPU then.
  try {
    out.devices.gpus =
        detail::choose_gpus({.visible = out.devices.gpus_visible,
                             .local_id = info.local_id.value_or(0),
                             .local_count = info.local_count.value_or(1),
                             .shared = detail::gpus_are_shared(here.environment, out.devices.gpus_visible),
                             .requested = info.local_device_ids});
  } catch (const Error& error) {
    out.notes.push_back(error.what());
  }
}

// Asks as a process of the job will.
void look_at_platform(const std::string& platform, Diagnosis& out) {
  out.gpus = report_gpus();
  detail::DeviceTable table(detail::device_variables);
  if (out.detection.chosen && out.detection.chosen->process_count > 1)
    table.join(0, std::vector<int>(static_cast<size_t>(out.detection.chosen->process_count), 1));
  attempt(out, [&] {
    if (!platform.empty()) table.set_platform(platform);
    out.devices.platform = to_string(table.platform());
    if (const std::string why = table.why_no_gpu(); !why.empty()) out.notes.push_back(why);
  });
  if (out.devices.platform != to_string(Platform::cuda)) return;
  for (const int gpu : out.devices.gpus.empty() ? out.gpus.used : out.devices.gpus)  // not those of its neighbours
    if (const size_t i = static_cast<size_t>(gpu); i < out.gpus.gpus.size() && !out.gpus.gpus[i].why_not.empty())
      out.problems.push_back(problem_of(out.gpus.gpus[i].why_not));
}

void look_at_host(const distributed::Options& options, const LaunchEnvironment& here, Diagnosis& out) {
  out.host_name = here.host_name;
  out.full_host_name = here.full_host_name;
  attempt(out, [&] {
    out.interfaces = detail::list_interfaces();
    out.interfaces = detail::choose_interfaces(options.network_interface, out.interfaces);
  });
  for (const char* name :
       {"grpc_proxy", "https_proxy", "http_proxy", "all_proxy", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"})
    if (const auto found = here.environment.find(name); found != here.environment.end() && !found->second.empty())
      out.proxies.emplace_back(name);
  struct statvfs shared = {};
  if (::statvfs("/dev/shm", &shared) == 0) {
    out.shared_bytes = static_cast<uint64_t>(shared.f_blocks) * shared.f_frsize;
    out.shared_free = static_cast<uint64_t>(shared.f_bavail) * shared.f_frsize;
  }
}

// Allocates what processes of this host would share, and frees it.
void look_at_shared_memory(const distributed::Options& options, const LaunchEnvironment& here, Diagnosis& out) {
  const int count = out.detection.chosen ? out.detection.chosen->local_count.value_or(2) : 2;
  try {
    reserve_shared_memory({.key = make_token(), .rank = 0, .size = std::max(count, 2)});
    return;
  } catch (const IoError& error) {
    out.why_no_shared_memory = error.what();
  }
  const auto wanted = here.environment.find("LOCKSTEP_COLLECTIVES");
  const bool must = options.collectives == "shared" || (wanted != here.environment.end() && wanted->second == "shared");
  if (must)
    out.problems.push_back(problem_of(out.why_no_shared_memory));
  else
    out.notes.push_back(fmt::format("processes of one host will use TCP instead of shared memory, which is slower: {}",
                                    out.why_no_shared_memory));
}

// What NCCL needs in /dev/shm for the GPUs of one host.
constexpr uint64_t kNcclNeeds = 16 << 20;

void look_at_parts(const distributed::Options& options, const LaunchEnvironment& here, const ClusterInfo& info,
                   Diagnosis& out) {
  const bool over_mpi = info.mpi && info.coordinator.empty();
  if (over_mpi && !*kMpi)
    out.problems.push_back(
        {"MPI started this process, and this build has no MPI",
         "install libopenmpi-dev and build again, or set LOCKSTEP_COORDINATOR to HOST:PORT of process 0"});
  if (!over_mpi && !*kControlPlane)
    out.problems.push_back({"this build has no control plane, through which processes meet",
                            "install libgrpc++-dev, libprotobuf-dev, protobuf-compiler and protobuf-compiler-grpc, and "
                            "build again"});
  if (out.shared_free < kNcclNeeds && info.local_count.value_or(2) > 1 &&
      out.devices.platform == to_string(Platform::cuda))
    out.problems.push_back(
        {fmt::format("{} KiB are free in /dev/shm, through which NCCL connects the GPUs of one host, and {} are needed",
                     out.shared_free >> 10, kNcclNeeds >> 10),
         "make it larger: docker run --shm-size=1g, or in Kubernetes an emptyDir of medium Memory mounted there"});
  if (!over_mpi)
    attempt(out, [&] {
      find_admission(options.token, info, here.environment,
                     [&](const std::string& line) { out.notes.push_back(line); });
    });
}

// Where process 0 is to listen, before it does.
void look_at_listener(const Address& at, const std::string& host, const std::vector<std::string>& numbers,
                      Diagnosis& out) {
  const std::vector<std::string> own = detail::listen_addresses(
      host, numbers, detail::list_interfaces(), [&](const std::string& line) { out.notes.push_back(line); });
  for (const std::string& number : own) {
    const std::string why = detail::listen_error(number, at.port);
    if (why.empty()) continue;
    const std::string owner = detail::port_owner(at.port);
    const std::string place = to_string(Address{number, at.port});
    if (owner.find("(lockstep)") != std::string::npos) {
      out.coordinator->answer = fmt::format("{} listens there already: the job is running", owner);
    } else {
      out.coordinator->answer = fmt::format("cannot be listened at: {}", why);
      out.problems.push_back(
          {fmt::format("process 0 is to listen at {}, and cannot: {}{}", place, why,
                       owner.empty() ? "" : fmt::format("; it is taken by {}", owner)),
           "end that program, or choose another port (LOCKSTEP_COORDINATOR, LOCKSTEP_COORDINATOR_PORT)"});
    }
    return;
  }
  out.coordinator->answer = "free: process 0, which this is, will listen there";
}

// Where the other processes find process 0.
void look_at_answer(const Address& at, const std::vector<std::string>& numbers, std::chrono::milliseconds timeout,
                    Diagnosis& out) {
  PortProbe probe_port;
  for (const std::string& number : numbers) {
    probe_port = detail::probe_port(number, at.port, timeout);
    if (probe_port.result == PortProbe::Result::answered || probe_port.result == PortProbe::Result::refused) break;
  }
  if (probe_port.result == PortProbe::Result::answered) {
    out.coordinator->answer = "answers";
  } else if (probe_port.result == PortProbe::Result::refused) {
    out.coordinator->answer = "the host answers, and nobody listens there yet: process 0 is not running";
  } else {
    out.coordinator->answer = probe_port.detail;
    out.problems.push_back(
        {fmt::format("the coordinator {} does not answer: {}", to_string(at), probe_port.detail),
         "check that process 0 runs there, that no firewall is in between, and that the address belongs to a network "
         "that both machines are in (LOCKSTEP_COORDINATOR takes another)"});
  }
}

void look_at_coordinator(const ClusterInfo& info, std::chrono::milliseconds timeout, Diagnosis& out) {
  out.coordinator.emplace();
  const Address at = detail::parse_address(info.coordinator, "coordinator");
  attempt(out, [&] {
    out.coordinator->answer = "not found";
    out.coordinator->numbers = detail::resolve(at.host, timeout);
    out.coordinator->answer = "not asked";
    out.coordinator->own_address = detail::local_address_towards(at, timeout);
    if (info.process_id != 0) return look_at_answer(at, out.coordinator->numbers, timeout, out);
    if (info.bind_address.empty()) return look_at_listener(at, at.host, out.coordinator->numbers, out);
    const Address bind = detail::parse_address(info.bind_address, "coordinator_bind_address");
    look_at_listener(bind, bind.host, detail::resolve(bind.host, timeout), out);
  });
}

// Whether the interfaces that are wanted are those through which the coordinator is reached.
void check_way(const std::string& pattern, Diagnosis& out) {
  const std::string& own = out.coordinator->own_address;
  const auto has_it = [&](const detail::Interface& each) { return each.address == own; };
  if (!own.empty() && std::none_of(out.interfaces.begin(), out.interfaces.end(), has_it))
    out.notes.push_back(fmt::format(
        "the way to the coordinator begins at {}, which belongs to none of the interfaces \"{}\"", own, pattern));
}

}  // namespace

Diagnosis diagnose(const distributed::Options& options, const LaunchEnvironment& here,
                   std::chrono::milliseconds timeout, const std::string& platform) {
  Diagnosis out;
  out.detection = detail::run_detectors(options, here);
  if (!out.detection.chosen) out.problems.push_back(problem_of(out.detection.problem));
  look_at_build(out);
  look_at_devices(here, out);
  look_at_platform(platform, out);
  look_at_host(options, here, out);
  look_at_shared_memory(options, here, out);
  for (const detail::DetectorResult& result : out.detection.results)
    if (result.partially_set && out.detection.chosen && out.detection.chosen->method == "none")
      out.notes.push_back(fmt::format("{} is half there: {}", result.detector, result.reason));
  if (out.detection.chosen && out.detection.chosen->process_count > 1) {
    look_at_parts(options, here, *out.detection.chosen, out);
    if (!out.detection.chosen->coordinator.empty()) look_at_coordinator(*out.detection.chosen, timeout, out);
    if (out.coordinator && !options.network_interface.empty()) check_way(options.network_interface, out);
    if (out.coordinator && out.coordinator->numbers.empty() && here.environment.contains("KUBERNETES_SERVICE_HOST"))
      out.notes.push_back(
          "the name of a pod is known only when the pod runs and its headless Service is there: ask again then");
  }
  return out;
}

}  // namespace lockstep::cli
