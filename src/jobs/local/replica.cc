#include "jobs/local/replica.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "base/check.h"
#include "base/text_bytes.h"
#include "cluster/job_attempts.h"
#include "cluster/token.h"
#include "jobs/launch.h"
#include "jobs/local/pod_log.h"
#include "jobs/model/manifest.h"
#include "jobs/stand_in.h"
#include "lane/cpus.h"

namespace lockstep {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

constexpr std::array kInheritedNames = {
    "PATH",          "HOME",        "USER",          "LOGNAME",      "SHELL",
    "LANG",          "TZ",          "TMPDIR",        "TERM",         "LD_LIBRARY_PATH",
    "PYTHONPATH",    "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR", "ASAN_OPTIONS",
    "UBSAN_OPTIONS", "TSAN_OPTIONS"};
constexpr std::array kInheritedPrefixes = {"LC_",   "OMP_",    "OPENBLAS_", "LOCKSTEP_", "XDG_",
                                           "CUDA_", "NVIDIA_", "NCCL_",     "JAX_",      "XLA_"};
// Variables that describe a job or one of its processes; an inherited value would belong to another one.
constexpr std::array kJobVariables = {"LOCKSTEP_COORDINATOR",
                                      "LOCKSTEP_COORDINATOR_PORT",
                                      "LOCKSTEP_NUM_PROCESSES",
                                      "LOCKSTEP_PROCESS_ID",
                                      "LOCKSTEP_LOCAL_ID",
                                      "LOCKSTEP_LOCAL_COUNT",
                                      "LOCKSTEP_POD_FOLDER",
                                      kJobVariable,
                                      "JAX_COORDINATOR_ADDRESS",
                                      "JAX_COORDINATOR_PORT",
                                      "JAX_COORDINATOR_BIND_ADDRESS",
                                      "JAX_NUM_PROCESSES",
                                      "JAX_PROCESS_COUNT",
                                      "JAX_PROCESS_ID",
                                      "JAX_LOCAL_DEVICE_IDS"};
constexpr std::array kSecretWords = {"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "PRIVATE"};

bool is_inherited(std::string_view name) {
  const auto is_name = [&](std::string_view each) { return name == each; };
  if (std::ranges::any_of(kJobVariables, is_name)) return false;
  if (std::ranges::any_of(kSecretWords, [&](std::string_view each) { return name.find(each) != name.npos; }))
    return false;
  return std::ranges::any_of(kInheritedNames, is_name) ||
         std::ranges::any_of(kInheritedPrefixes, [&](std::string_view each) { return name.starts_with(each); });
}

// The variables that the Kubeflow operator sets (for an Indexed Job, the launcher's), with a coordinator on this
// machine.
Variables cluster_variables(const Job& job, int index, int port) {
  constexpr const char* kHere = "127.0.0.1";
  const std::string count = std::to_string(job.spec.replicas), id = std::to_string(index);
  if (job.kind == JobKind::jax_job)
    return {{"PYTHONUNBUFFERED", "1"},
            {"COORDINATOR_PORT", std::to_string(port)},
            {"COORDINATOR_ADDRESS", kHere},
            {"NUM_PROCESSES", count},
            {"PROCESS_ID", id}};
  return {{"JOB_COMPLETION_INDEX", id},
          {"LOCKSTEP_COORDINATOR", fmt::format("{}:{}", kHere, port)},
          {"LOCKSTEP_NUM_PROCESSES", count},
          {"LOCKSTEP_PROCESS_ID", id}};
}

std::vector<std::string> argv_of(const LocalJob& job, const Variables& variables) {
  const Container& container = job.job.spec.container;
  // apply() has checked that a stand-in exists. If it was removed since, the replica fails to start and names the path.
  const auto installed = [&](const std::string& name) {
    const std::vector<std::string> paths = stand_in_paths(name, job.program);
    const auto found = std::ranges::find_if(paths, [](const auto& each) { return ::access(each.c_str(), X_OK) == 0; });
    return found == paths.end() ? paths.front() : *found;
  };
  if (const std::string name = stand_in_of(container); !name.empty()) return {installed(name)};
  std::vector<std::string> out;
  for (const std::string& word : container.command) out.push_back(expand_variables(word, variables));
  if (out.empty())
    out.push_back(job.program);
  else if (out[0] == "lockstep")
    out[0] = job.program;
  else if (is_image_program(out[0]))
    out[0] = installed(out[0]);
  for (const std::string& word : container.args) out.push_back(expand_variables(word, variables));
  if (container.command.empty() && container.args.empty()) out.push_back("train");
  return out;
}

std::string folder_of(const LocalJob& job) {
  const std::string& folder = job.job.spec.container.folder;
  if (folder.empty()) return job.folder;
  return folder.starts_with('/') ? folder : job.folder + "/" + folder;
}

// Listens on the port (0: any free port) for a moment. Returns the port, or 0 if it is in use.
int try_bind_port(int port) {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;  // ignore closed connections in TIME_WAIT
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  address.sin_port = ::htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket || ::bind(socket.get(), generic, size) != 0) return 0;
  // bind() alone proves nothing: with SO_REUSEADDR it can succeed beside a listening socket.
  if (::listen(socket.get(), 1) != 0 || ::getsockname(socket.get(), generic, &size) != 0) return 0;
  return ::ntohs(address.sin_port);
}

}  // namespace

std::map<std::string, std::string> inherited_variables(const detail::Environment& environment) {
  std::map<std::string, std::string> out;
  for (const auto& [name, value] : environment)
    if (is_inherited(name)) out.emplace(name, value);
  return out;
}

int64_t log_limit(const std::map<std::string, std::string>& environment) {
  const auto found = environment.find("LOCKSTEP_LOG_LIMIT");
  if (found == environment.end() || found->second.empty()) return kDefaultLogLimit;
  const std::string& text = found->second;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < kMinLogLimit)
    throw_error("LOCKSTEP_LOG_LIMIT is \"{}\"; set it to a number of bytes, at least {}", text, kMinLogLimit);
  return value;
}

int64_t termination_grace(const Job& job) {
  constexpr int64_t kDefault = 30;
  const nlohmann::ordered_json::json_pointer path(
      job.kind == JobKind::jax_job ? "/spec/jaxReplicaSpecs/Worker/template/spec/terminationGracePeriodSeconds"
                                   : "/spec/template/spec/terminationGracePeriodSeconds");
  if (!job.manifest.contains(path)) return kDefault;
  const auto& value = job.manifest.at(path);
  return value.is_number_integer() ? std::max<int64_t>(value.get<int64_t>(), 0) : kDefault;
}

ReplicaSpec replica_spec(const LocalJob& job, int index, const std::string& attempt_folder, const PodFolder& folder,
                         int port, const std::vector<int>& cpus) {
  Variables variables = replica_env(job.job, index);
  for (auto& each : cluster_variables(job.job, index, port)) {
    std::erase_if(variables, [&](const auto& other) { return other.first == each.first; });
    variables.push_back(std::move(each));
  }
  std::map<std::string, std::string> all = job.environment;
  const bool own_token = std::ranges::any_of(variables, [](const auto& each) {
    return each.first == "LOCKSTEP_TOKEN" || each.first == "LOCKSTEP_TOKEN_FILE";
  });
  if (!own_token) all["LOCKSTEP_TOKEN_FILE"] = attempt_folder + "/token";
  const std::string attempt = std::to_string(job.job.status.attempt);
  all[kJobVariable] = job_variable({}, "job-" + job.job.uid, attempt);
  for (const auto& [name, value] : variables) all[name] = value;

  ReplicaSpec out{.argv = argv_of(job, variables),
                  .environment = {},
                  .folder = folder_of(job),
                  .cpus = cpus,
                  .grace = std::chrono::seconds(termination_grace(job.job)),
                  .log_limit = log_limit(job.environment),
                  .port = index == 0 ? port : 0};
  for (const auto& [name, value] : all) out.environment.push_back(name + "=" + value);
  out.environment.push_back(pod_marker(folder));
  return out;
}

bool is_port_free(int port) { return try_bind_port(port) != 0; }

int choose_port(int wanted, const std::set<int>& taken) {
  if (!taken.contains(wanted) && is_port_free(wanted)) return wanted;
  constexpr int kMaxTries = 100;
  for (int i = 0; i < kMaxTries; ++i)
    if (const int port = try_bind_port(0); port != 0 && !taken.contains(port)) return port;
  throw_io_error("find", "a free port", EADDRINUSE);
}

int prepare_attempt(const LocalJob& job, const StateDir& state, const std::set<int>& taken_ports, FileSystem& files) {
  const int attempt = job.job.status.attempt, replicas = job.job.spec.replicas;
  const std::string folder = state.attempt_folder(job.job, attempt), unfinished = folder + ".new";
  files.remove_tree(unfinished);
  files.make_dirs(unfinished);
  const std::string token = make_token() + "\n";
  files.write(unfinished + "/token", text_bytes(token));
  const int port = choose_port(job.job.spec.container.port, taken_ports);
  const std::string port_text = std::to_string(port) + "\n";
  files.write(unfinished + "/port", text_bytes(port_text));
  const std::vector<std::vector<int>> cpus =
      split_cpus(replicas > 1 ? cpu_places(affinity_cpus()) : std::vector<CpuPlace>(), replicas);
  for (int i = 0; i < replicas; ++i) {
    const PodFolder final_folder = state.pod_folder(job.job, attempt, i);
    const std::string temporary = unfinished + "/" + pod_name(job.job, i);
    files.make_dirs(temporary);
    PodFolder(temporary).write(replica_spec(job, i, folder, final_folder, port, cpus[static_cast<size_t>(i)]), files);
  }
  files.rename(unfinished, folder);
  files.sync_dir(parent_dir(folder));
  return port;
}

}  // namespace lockstep
