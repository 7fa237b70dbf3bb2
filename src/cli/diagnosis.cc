#include "cli/diagnosis.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>

#include "base/file.h"
#include "base/names.h"
#include "base/runtime_settings.h"
#include "cluster/address_auth.h"
#include "cluster/cpu_binding.h"
#include "cluster/gpus.h"
#include "cluster/listen_addresses.h"
#include "cluster/port_owner.h"
#include "cluster/variables.h"
#include "comm/mpi/mpi_library.h"
#include "comm/shared/shared_memory.h"
#include "lane/lane.h"
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
constexpr bool kControlPlane = true;
#else
constexpr bool kControlPlane = false;
#endif

// Splits a message "a: b; c" into the problem "a: b" and its remedy "c".
Diagnosis::Problem problem_of(const std::string& message) {
  const size_t cut = message.find("; ");
  if (cut == message.npos) return {message, ""};
  return {message.substr(0, cut), message.substr(cut + 2)};
}

// Runs a check and records what it throws as a problem, without duplicates.
template <class F>
void run_check(Diagnosis& out, F check) {
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

void check_build(Diagnosis& out) {
  const BuildFacts build = build_facts();
  out.compiler = build.compiler;
  out.machine = build.machine;
  out.parts = features();
}

int count_nvidia_devices() {
  if (!FileSystem::real().exists("/dev/nvidiactl")) return 0;
  int count = 0;
  for (int i = 0; FileSystem::real().exists(fmt::format("/dev/nvidia{}", i)); ++i) ++count;
  return count;
}

void check_devices(const LaunchEnvironment& here, Diagnosis& out) {
  out.devices.cores = available_cpus();
  run_check(out, [&] { out.devices.cpu_devices = detail::detect_cpu_devices(here.environment); });
  run_check(out, [&] { out.devices.lanes = local_lane_count(); });
  out.devices.gpus_visible = detail::visible_gpus(here.environment, count_nvidia_devices());
  if (out.devices.gpus_visible == 0 || !out.detection.chosen) return;
  const ClusterInfo& info = *out.detection.chosen;
  // A wrong assignment of GPUs is only a note, because the process then uses the CPU.
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

// Chooses the platform as a process of the job does.
void check_platform(const std::string& platform, Diagnosis& out) {
  out.gpus = report_gpus();
  detail::DeviceTable table(detail::device_variables);
  if (out.detection.chosen && out.detection.chosen->process_count > 1)
    table.join(0, std::vector<int>(static_cast<size_t>(out.detection.chosen->process_count), 1));
  run_check(out, [&] {
    if (!platform.empty()) table.set_platform(platform);
    out.devices.platform = to_string(table.platform());
    if (const std::string why = table.why_no_gpu(); !why.empty()) out.notes.push_back(why);
  });
  if (out.devices.platform != to_string(Platform::cuda)) return;
  for (const int gpu : out.devices.gpus.empty() ? out.gpus.used : out.devices.gpus)  // only those of this process
    if (const size_t i = static_cast<size_t>(gpu); i < out.gpus.gpus.size() && !out.gpus.gpus[i].why_not.empty())
      out.problems.push_back(problem_of(out.gpus.gpus[i].why_not));
}

void check_host(const distributed::Options& options, const LaunchEnvironment& here, Diagnosis& out) {
  out.host_name = here.host_name;
  out.full_host_name = here.full_host_name;
  run_check(out, [&] {
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

// Allocates and frees the memory that the processes of this host would share.
void check_shared_memory(const distributed::Options& options, const LaunchEnvironment& here, Diagnosis& out) {
  const int count = out.detection.chosen ? out.detection.chosen->local_count.value_or(2) : 2;
  try {
    create_shared_memory(std::max(count, 2));
    return;
  } catch (const IoError& error) {
    out.why_no_shared_memory = error.what();
  }
  const auto wanted = here.environment.find("LOCKSTEP_COLLECTIVES");
  const bool must = options.collectives == "shared" || (wanted != here.environment.end() && wanted->second == "shared");
  if (must)
    out.problems.push_back(problem_of(out.why_no_shared_memory));
  else
    out.notes.push_back(fmt::format("processes on one host will use TCP, which is slower than shared memory: {}",
                                    out.why_no_shared_memory));
}

// Free bytes of /dev/shm that NCCL needs for the GPUs of one host.
constexpr uint64_t kNcclNeeds = 16 << 20;

void check_build_parts(const distributed::Options& options, const LaunchEnvironment& here, const ClusterInfo& info,
                       Diagnosis& out) {
  const bool over_mpi = info.mpi && info.coordinator.empty();
  if (over_mpi && !mpi_library().functions)
    out.problems.push_back(problem_of("MPI started this process, but it is not available: " + mpi_library().failure));
  if (!over_mpi && !kControlPlane)
    out.problems.push_back({"this build has no control plane, which jobs of several processes need",
                            "install libgrpc++-dev and pkg-config, and rebuild"});
  if (out.shared_free < kNcclNeeds && info.local_count.value_or(2) > 1 &&
      out.devices.platform == to_string(Platform::cuda))
    out.problems.push_back(
        {fmt::format("/dev/shm has {} KiB free, but NCCL needs {} KiB to connect the GPUs of one host",
                     out.shared_free >> 10, kNcclNeeds >> 10),
         "enlarge it: docker run --shm-size=1g, or in Kubernetes mount an emptyDir of medium Memory there"});
  if (!over_mpi)
    run_check(out, [&] {
      find_admission(options.token, info, here.environment,
                     [&](const std::string& line) { out.notes.push_back(line); });
    });
}

// Checks whether process 0, which this is, can listen at its address.
void check_listener(const Address& at, const std::string& host, const std::vector<std::string>& addresses,
                    Diagnosis& out) {
  const std::vector<std::string> own = detail::listen_addresses(
      host, addresses, detail::list_interfaces(), [&](const std::string& line) { out.notes.push_back(line); });
  for (const std::string& number : own) {
    const std::string why = detail::listen_error(number, at.port);
    if (why.empty()) continue;
    const std::string owner = detail::port_owner(at.port);
    const std::string place = to_string(Address{number, at.port});
    if (owner.find("(lockstep)") != std::string::npos) {
      out.coordinator->status = fmt::format("{} already listens there: the job is running", owner);
    } else {
      out.coordinator->status = fmt::format("cannot listen: {}", why);
      out.problems.push_back(
          {fmt::format("process 0 cannot listen at {}: {}{}", place, why,
                       owner.empty() ? "" : fmt::format("; {} uses the port", owner)),
           "stop that program, or choose another port (LOCKSTEP_COORDINATOR, LOCKSTEP_COORDINATOR_PORT)"});
    }
    return;
  }
  out.coordinator->status = "free: this process, process 0, will listen there";
}

// Checks whether process 0 is reachable from here.
void check_reachable(const Address& at, const std::vector<std::string>& addresses, std::chrono::milliseconds timeout,
                     Diagnosis& out) {
  PortProbe probe;
  for (const std::string& number : addresses) {
    probe = detail::probe_port(number, at.port, timeout);
    if (probe.result == PortProbe::Result::answered || probe.result == PortProbe::Result::refused) break;
  }
  if (probe.result == PortProbe::Result::answered) {
    out.coordinator->status = "reachable";
  } else if (probe.result == PortProbe::Result::refused) {
    out.coordinator->status = "the host is reachable, but nothing listens at the port yet: process 0 is not running";
  } else {
    out.coordinator->status = probe.detail;
    out.problems.push_back(
        {fmt::format("the coordinator {} is not reachable: {}", to_string(at), probe.detail),
         "check that process 0 runs there, that no firewall blocks the port, and that the address is in a network that "
         "both hosts share (set LOCKSTEP_COORDINATOR to use another address)"});
  }
}

void check_coordinator(const ClusterInfo& info, std::chrono::milliseconds timeout, Diagnosis& out) {
  out.coordinator.emplace();
  const Address at = detail::parse_address(info.coordinator, "coordinator");
  run_check(out, [&] {
    out.coordinator->status = "the name does not resolve";
    out.coordinator->addresses = detail::resolve(at.host, timeout);
    out.coordinator->status = "not checked";
    out.coordinator->own_address = detail::local_address_towards(at, timeout);
    if (info.process_id != 0) return check_reachable(at, out.coordinator->addresses, timeout, out);
    if (info.bind_address.empty()) return check_listener(at, at.host, out.coordinator->addresses, out);
    const Address bind = detail::parse_address(info.bind_address, "coordinator_bind_address");
    check_listener(bind, bind.host, detail::resolve(bind.host, timeout), out);
  });
}

// Adds a note when the route to the coordinator uses none of the requested interfaces.
void check_route(const std::string& pattern, Diagnosis& out) {
  const std::string& own = out.coordinator->own_address;
  const auto has_it = [&](const detail::Interface& each) { return each.address == own; };
  if (!own.empty() && std::none_of(out.interfaces.begin(), out.interfaces.end(), has_it))
    out.notes.push_back(fmt::format(
        "the route to the coordinator starts at {}, which is not an address of the interfaces \"{}\"", own, pattern));
}

// Adds the wrong variables that no other check has reported.
void check_runtime_variables(const LaunchEnvironment& here, Diagnosis& out) {
  for (const detail::RuntimeSetting& setting : detail::runtime_settings()) {
    const std::string* const text = detail::find_variable(here.environment, std::string(setting.variable));
    const std::string error = text ? variable_error(setting, *text) : "";
    const auto names_it = [&](const Diagnosis::Problem& known) {
      return known.what.find(fmt::format("{} is \"", setting.variable)) != std::string::npos;
    };
    if (!error.empty() && std::ranges::none_of(out.problems, names_it)) out.problems.push_back(problem_of(error));
  }
}

}  // namespace

Diagnosis diagnose(const distributed::Options& options, const LaunchEnvironment& here,
                   std::chrono::milliseconds timeout, const std::string& platform) {
  Diagnosis out;
  out.detection = detail::run_detectors(options, here);
  if (!out.detection.chosen) out.problems.push_back(problem_of(out.detection.problem));
  check_build(out);
  check_devices(here, out);
  check_platform(platform, out);
  check_host(options, here, out);
  if (out.detection.chosen)
    run_check(out, [&] {
      if (std::string note = narrow_binding(*out.detection.chosen, here.environment); !note.empty())
        out.notes.push_back(std::move(note));
    });
  check_shared_memory(options, here, out);
  for (const detail::DetectorResult& result : out.detection.results)
    if (result.partially_set && out.detection.chosen && out.detection.chosen->method == "none")
      out.notes.push_back(fmt::format("{} is only partly set: {}", result.detector, result.reason));
  if (out.detection.chosen && out.detection.chosen->process_count > 1) {
    check_build_parts(options, here, *out.detection.chosen, out);
    if (!out.detection.chosen->coordinator.empty()) check_coordinator(*out.detection.chosen, timeout, out);
    if (out.coordinator && !options.network_interface.empty()) check_route(options.network_interface, out);
    if (out.coordinator && out.coordinator->addresses.empty() && here.environment.contains("KUBERNETES_SERVICE_HOST"))
      out.notes.push_back(
          "the name of a pod resolves only while the pod runs and its headless Service exists: retry then");
  }
  check_runtime_variables(here, out);
  return out;
}

}  // namespace lockstep::cli
