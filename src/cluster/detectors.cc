#include "cluster/detectors.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/check.h"
#include "cluster/host_list.h"
#include "cluster/variables.h"

namespace lockstep::detail {
namespace {

using DetectorOutcome = std::variant<ClusterInfo, NotDetected>;

// Fills count and id from two variables that are set.
void read_count_and_id(const Environment& environment, const std::string& count_name, const std::string& id_name,
                       ClusterInfo& info) {
  info.process_count = number_variable(environment, count_name, 1);
  info.process_id = number_variable(environment, id_name, 0);
  check_id(id_name, info.process_id, count_name, info.process_count);
}

// Fills count and id among the processes of this host, from two variables that may be unset.
void read_local(const Environment& environment, const std::string& count_name, const std::string& id_name,
                ClusterInfo& info) {
  info.local_count = optional_number(environment, count_name, 1);
  info.local_id = optional_number(environment, id_name, 0);
  if (info.local_id && info.local_count) check_id(id_name, *info.local_id, count_name, *info.local_count);
}

DetectorOutcome detect_explicit(const DetectorInput& input) {
  const ExplicitSettings& given = input.given;
  if (!given.any()) return NotDetected{"LOCKSTEP_COORDINATOR is not set"};
  const bool alone = given.count && given.count->value == 1;
  if (!alone && (!given.coordinator || !given.count || !given.id))
    return NotDetected{
        fmt::format("{} missing; set all three, unless a launcher provides them", describe_missing(given)), true};
  ClusterInfo info;
  info.coordinator = given.coordinator.value_or("");
  info.process_count = given.count->value;
  if (given.id) info.process_id = given.id->value;
  return info;
}

DetectorOutcome detect_jax(const DetectorInput& input) {
  const Environment& environment = input.launch.environment;
  const bool other_name =
      !find_variable(environment, "JAX_NUM_PROCESSES") && find_variable(environment, "JAX_PROCESS_COUNT");
  const char* const count_name = other_name ? "JAX_PROCESS_COUNT" : "JAX_NUM_PROCESSES";
  if (auto no =
          check_all_set(environment, {"JAX_COORDINATOR_ADDRESS", count_name, "JAX_PROCESS_ID"}, "set all of them"))
    return *no;
  ClusterInfo info;
  read_count_and_id(environment, count_name, "JAX_PROCESS_ID", info);
  const std::optional<int> again = optional_number(environment, "JAX_PROCESS_COUNT", 1);
  if (again && *again != info.process_count)
    throw_error("initialize: {} is \"{}\" and JAX_PROCESS_COUNT is \"{}\"; keep one of them", count_name,
                info.process_count, *again);
  info.coordinator = to_string(address_variable(environment, "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT", 0));
  return info;
}

DetectorOutcome detect_jaxjob(const DetectorInput& input) {
  constexpr int kPort = 6666;
  const Environment& environment = input.launch.environment;
  if (auto no = check_all_set(environment, {"COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID"},
                              "a JAXJob's controller sets all of them"))
    return *no;
  ClusterInfo info;
  read_count_and_id(environment, "NUM_PROCESSES", "PROCESS_ID", info);
  info.coordinator = to_string(address_variable(environment, "COORDINATOR_ADDRESS", "COORDINATOR_PORT", kPort));
  return info;
}

// A port derived from the job id, so that jobs on the same machine rarely collide.
int slurm_port(const std::string& job_id) {
  constexpr uint64_t kPorts = 4096, kFirst = 61440;
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(job_id.data(), job_id.data() + job_id.size(), id);
  if (error != std::errc() || end != job_id.data() + job_id.size())
    throw_error("initialize: SLURM_JOB_ID is \"{}\"; set it to a number, or unset it", job_id);
  return static_cast<int>(id % kPorts + kFirst);
}

// The number of tasks on node `node`. "2(x3),1" means two on each of three nodes and one on the fourth.
int slurm_tasks(const std::string& name, const std::string& text, int node) {
  const auto fail = [&]() -> int {
    throw_error("initialize: {} is \"{}\" and SLURM_NODEID is \"{}\"; give a list like 2(x3),1 that covers this node",
                name, text, node);
  };
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&] {
    int value = 0;
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 1) fail();
    at = stop;
    return value;
  };
  const auto skip = [&](std::string_view word) {
    if (!std::string_view(at, static_cast<size_t>(end - at)).starts_with(word)) return false;
    at += word.size();
    return true;
  };
  for (int64_t before = 0;;) {
    const int tasks = number();
    int nodes = 1;
    if (skip("(x")) {
      nodes = number();
      if (!skip(")")) return fail();
    }
    before += nodes;
    if (node < before) return tasks;
    if (!skip(",")) return fail();
  }
}

// Returns NotDetected if another launcher started this process inside a Slurm step or pod: the innermost launcher takes
// precedence. (In a Slurm job, mpirun starts its daemons as a step, and the processes inherit the step's variables.)
std::optional<NotDetected> check_inner_launcher(const Environment& environment) {
  const auto set = [&](const char* name) { return find_variable(environment, name); };
  const char* inner = nullptr;
  if (set("OMPI_COMM_WORLD_SIZE") && (set("OMPI_MCA_orte_hnp_uri") || set("PRTE_LAUNCHED")))
    inner = "mpirun";
  else if (set("PMI_RANK") && set("PMI_SIZE") && set("SLURM_PROCID") && set("SLURM_NTASKS") &&
           (*set("PMI_RANK") != *set("SLURM_PROCID") || *set("PMI_SIZE") != *set("SLURM_NTASKS")))
    inner = "mpiexec";
  else if (set("TORCHELASTIC_RUN_ID") && set("RANK") && set("LOCAL_RANK"))
    inner = "torchrun";
  if (!inner) return std::nullopt;
  return NotDetected{fmt::format("it is present, but {} started this process inside it", inner)};
}

DetectorOutcome detect_slurm(const DetectorInput& input) {
  const Environment& environment = input.launch.environment;
  if (auto no = check_all_set(environment,
                              {"SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"},
                              "a shell inside a job is not part of a step: start the program with srun"))
    return *no;
  if (auto no = check_inner_launcher(environment)) return *no;
  ClusterInfo info;
  read_count_and_id(environment, "SLURM_NTASKS", "SLURM_PROCID", info);
  info.local_id = number_variable(environment, "SLURM_LOCALID", 0);
  const std::optional<int> node = optional_number(environment, "SLURM_NODEID", 0);
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"})
    if (const std::string* tasks = find_variable(environment, name); tasks && node && !info.local_count) {
      info.local_count = slurm_tasks(name, *tasks, *node);
      check_id("SLURM_LOCALID", *info.local_id, "the number of tasks on this node", *info.local_count);
    }
  const std::string& nodes = *find_variable(environment, "SLURM_STEP_NODELIST");
  info.coordinator =
      to_string({expand_host_list(nodes, "SLURM_STEP_NODELIST").front(),
                 coordinator_port(environment, slurm_port(*find_variable(environment, "SLURM_JOB_ID")))});
  info.mpi = find_variable(environment, "PMIX_RANK") || find_variable(environment, "PMI_RANK");
  return info;
}

DetectorOutcome detect_ompi(const DetectorInput& input) {
  const Environment& environment = input.launch.environment;
  if (auto no =
          check_all_set(environment, {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"},
                        "start the program with mpirun"))
    return *no;
  if (!find_variable(environment, "OMPI_MCA_orte_hnp_uri") && !find_variable(environment, "PRTE_LAUNCHED") &&
      !find_variable(environment, "PMIX_RANK"))
    return NotDetected{
        "OMPI_COMM_WORLD_SIZE is set, but neither OMPI_MCA_orte_hnp_uri (Open MPI 4) nor PRTE_LAUNCHED or PMIX_RANK "
        "(Open MPI 5); start the program with mpirun",
        true};
  ClusterInfo info;
  read_count_and_id(environment, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", info);
  read_local(environment, "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", info);
  info.mpi = true;
  return info;
}

DetectorOutcome detect_pmi(const DetectorInput& input) {
  const Environment& environment = input.launch.environment;
  if (auto no = check_all_set(environment, {"PMI_RANK", "PMI_SIZE"}, "start the program with mpiexec")) return *no;
  ClusterInfo info;
  read_count_and_id(environment, "PMI_SIZE", "PMI_RANK", info);
  read_local(environment, "MPI_LOCALNRANKS", "MPI_LOCALRANKID", info);
  info.mpi = true;
  return info;
}

constexpr int kKubernetesPort = 55527;

// The common part of an Indexed Job and a JobSet. Fills count and id.
std::optional<NotDetected> detect_indexed_job(const DetectorInput& input, ClusterInfo& info) {
  const Environment& environment = input.launch.environment;
  if (!find_variable(environment, "JOB_COMPLETION_INDEX")) return NotDetected{"JOB_COMPLETION_INDEX is not set"};
  if (!find_variable(environment, "KUBERNETES_SERVICE_HOST"))
    return NotDetected{"KUBERNETES_SERVICE_HOST is missing (JOB_COMPLETION_INDEX is set); run the program in a pod",
                       true};
  if (auto no = check_inner_launcher(environment)) return no;
  if (!input.given.count)
    return NotDetected{
        "LOCKSTEP_NUM_PROCESSES is missing (JOB_COMPLETION_INDEX is set); set it to the number of completions of the "
        "Job",
        true};
  info.process_count = input.given.count->value;
  info.process_id = number_variable(environment, "JOB_COMPLETION_INDEX", 0);
  check_id("JOB_COMPLETION_INDEX", info.process_id, input.given.count->name, info.process_count);
  return std::nullopt;
}

DetectorOutcome detect_jobset(const DetectorInput& input) {
  const LaunchEnvironment& launch = input.launch;
  if (!find_variable(launch.environment, "JOBSET_NAME") && !find_variable(launch.environment, "REPLICATED_JOB_NAME"))
    return NotDetected{"JOBSET_NAME is not set"};
  if (auto no = check_all_set(launch.environment, {"JOBSET_NAME", "REPLICATED_JOB_NAME"},
                              "set both, from the labels jobset.sigs.k8s.io/jobset-name and /replicatedjob-name"))
    return *no;
  ClusterInfo info;
  if (auto no = detect_indexed_job(input, info)) return *no;
  const std::string set = *find_variable(launch.environment, "JOBSET_NAME");
  const std::string job = fmt::format("{}-{}", set, *find_variable(launch.environment, "REPLICATED_JOB_NAME"));
  // <jobset>-<replicated job>-<job>-<pod>: indices restart at 0 in every job of the set.
  const std::string host = launch.host_name.substr(0, launch.host_name.find('.'));
  if (host.starts_with(job + "-") && !host.starts_with(job + "-0-"))
    return NotDetected{
        fmt::format(
            "the pod {} does not belong to the first job of {}; give the replicated job one replica, and its Job "
            "as many completions as processes",
            host, job),
        true};
  info.coordinator =
      to_string({fmt::format("{}-0-0.{}", job, set), coordinator_port(launch.environment, kKubernetesPort)});
  return info;
}

DetectorOutcome detect_kubernetes(const DetectorInput& input) {
  const LaunchEnvironment& launch = input.launch;
  ClusterInfo info;
  if (auto no = detect_indexed_job(input, info)) return *no;
  if (input.given.coordinator || info.process_count == 1) return info;
  const std::string& full = launch.full_host_name.empty() ? launch.host_name : launch.full_host_name;
  const size_t dot = std::min(full.find('.'), full.size());
  const std::string host = full.substr(0, dot), suffix = fmt::format("-{}", info.process_id);
  if (!host.ends_with(suffix) || host.size() == suffix.size())
    return NotDetected{
        fmt::format("the pod's host name is {}, but an Indexed Job's pods are named JOB{}; set LOCKSTEP_COORDINATOR "
                    "(HOST:PORT of index 0)",
                    host, suffix),
        true};
  if (dot == full.size())
    return NotDetected{
        fmt::format("the pod {} has no subdomain, so other pods cannot resolve it; give the pod template the "
                    "subdomain of a headless Service, or set LOCKSTEP_COORDINATOR (HOST:PORT of index 0)",
                    host),
        true};
  const std::string subdomain = full.substr(dot + 1, full.find('.', dot + 1) - dot - 1);
  info.coordinator = to_string({fmt::format("{}-0.{}", host.substr(0, host.size() - suffix.size()), subdomain),
                                coordinator_port(launch.environment, kKubernetesPort)});
  return info;
}

DetectorOutcome detect_torchrun(const DetectorInput& input) {
  const Environment& environment = input.launch.environment;
  if (auto no = check_all_set(environment, {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK"},
                              "torchrun sets all of them"))
    return *no;
  ClusterInfo info;
  read_count_and_id(environment, "WORLD_SIZE", "RANK", info);
  read_local(environment, "LOCAL_WORLD_SIZE", "LOCAL_RANK", info);
  Address address = address_variable(environment, "MASTER_ADDR", "MASTER_PORT", 0);
  // torchrun itself listens on MASTER_PORT for as long as its processes run: use the next port.
  const std::string* agent = find_variable(environment, "TORCHELASTIC_USE_AGENT_STORE");
  if (agent && (*agent == "True" || *agent == "1")) address.port += address.port < kLastPort ? 1 : -1;
  info.coordinator = to_string(address);
  return info;
}

DetectorOutcome detect_none(const DetectorInput&) { return ClusterInfo(); }

}  // namespace

bool is_jaxjob_replica(const Environment& environment) {
  return std::ranges::all_of(kJaxjobVariables, [&](const char* name) { return find_variable(environment, name); });
}

const std::array<Detector, kDetectors> kAllDetectors = {{
    {"explicit", detect_explicit},
    {"jax", detect_jax},
    {"jaxjob", detect_jaxjob},
    {"slurm", detect_slurm},
    {"ompi", detect_ompi},
    {"pmi", detect_pmi},
    {"jobset", detect_jobset},
    {"kubernetes", detect_kubernetes},
    {"torchrun", detect_torchrun},
    {"none", detect_none},
}};

}  // namespace lockstep::detail
