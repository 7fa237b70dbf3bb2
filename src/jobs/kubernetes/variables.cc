#include "jobs/kubernetes/variables.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/names.h"
#include "base/printable.h"
#include "cluster/token.h"
#include "jobs/kubernetes/variable_checks.h"
#include "jobs/kubernetes/variable_rows.h"
#include "lockstep/version.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Where the pods mount the token.
constexpr const char* kTokenFolder = "/var/run/secrets/lockstep";

constexpr JsonLimits kVariableLimits = {.bytes = 1 << 20, .depth = 16, .values = 100'000};

// Variables that may be null: the manifest then has no such field, and the cluster's default applies.
bool is_optional(const std::string& name) {
  static const std::vector<std::string> all = {
      "local_device_count", "cpu", "memory", "ephemeral_storage", "shm", "initialization_timeout", "data_ports"};
  return std::ranges::find(all, name) != all.end();
}

// Rejects variables that the built-in templates set.
void check_reserved_env(const Json& env, const VariablesOptions& options) {
  static const std::vector<std::pair<const char*, const char*>> own = {
      {"LOCKSTEP_NUM_PROCESSES", "hosts_count"},
      {"LOCKSTEP_COORDINATOR_PORT", "port"},
      {"LOCKSTEP_NUM_CPU_DEVICES", "local_device_count"},
      {"LOCKSTEP_TOKEN_FILE", "token_secret"},
      {"LOCKSTEP_INITIALIZATION_TIMEOUT", "initialization_timeout"},
      {"LOCKSTEP_DATA_PORTS", "data_ports"}};
  if (options.allow_unknown) return;
  for (const auto& [name, instead] : own)
    if (env.contains(name))
      throw_error("variables: env has {}, which the manifest sets; set {} instead", name, instead);
}

// Rejects labels and annotations that the built-in templates set.
void check_reserved_keys(const Json& all) {
  static const std::vector<std::pair<const char*, const char*>> own = {
      {"app.kubernetes.io/name", ""},
      {"app.kubernetes.io/instance", "name"},
      {"kueue.x-k8s.io/queue-name", "queue"},
      {"cluster-autoscaler.kubernetes.io/safe-to-evict", "safe_to_evict"}};
  for (const char* map : {"labels", "annotations"})
    for (const auto& [key, instead] : own)
      if (all.contains(map) && all[map].contains(key))
        throw_error("variables: {} has {}, which the manifest sets; {}", map, key,
                    *instead ? fmt::format("set {} instead", instead) : "remove it");
}

void check_all(const Json& given, const VariablesOptions& options) {
  if (!given.is_object()) throw_error("variables: expected an object, such as {{\"hosts_count\": 2}}");
  for (const auto& [name, value] : given.items()) {
    const VariableRow* row = find_variable_row(name);
    if (!row && options.allow_unknown) continue;
    if (!row) {
      std::vector<std::string> names;
      for (const VariableRow& each : variable_rows()) names.push_back(each.shown.name);
      throw_error("variables: unknown variable \"{}\";{} known: {}", printable(name), suggestion(name, names),
                  fmt::join(names, ", "));
    }
    if (std::string_view(row->kinds).find(options.kind) == std::string_view::npos)
      throw_error("variables: kind {} has no variable {}; remove it, or choose another --kind ({})", options.kind, name,
                  row->kinds);
    if (!value.is_null() || !is_optional(name)) check_variable(*row, value);
  }
}

void check_choice(const Json& all, const char* name, const std::vector<std::string>& choices) {
  const auto found = all.find(name);
  if (found != all.end() && std::ranges::find(choices, found->get<std::string>()) == choices.end())
    throw_invalid_variable(
        name, *found, fmt::format("use {} or {}", fmt::join(choices.begin(), choices.end() - 1, ", "), choices.back()));
}

// Checks variables that depend on each other, and those with rules of their own.
void check_together(const Json& all, const VariablesOptions& options) {
  if (const auto env = all.find("env"); env != all.end()) check_reserved_env(*env, options);
  if (!options.allow_unknown) check_reserved_keys(all);
  if (all.contains("token") && all.contains("token_secret"))
    throw_error(
        "variables: token and token_secret are both set; set token_secret for an existing Secret, else "
        "token");
  if (const auto token = all.find("token"); token != all.end())
    static_cast<void>(checked_token(token->get<std::string>(), "the variable token"));
  check_choice(all, "image_pull_policy", {"Always", "IfNotPresent", "Never"});
  check_choice(all, "restart_policy", {"OnFailure", "ExitCode"});
}

void set_default(Json& all, const char* name, Json value) {
  if (!all.contains(name)) all[name] = std::move(value);
}

// The limit with which the controller restarts all processes at least `backoff` times. At worst all pods of a job fail
// together, and each counts. Kubeflow's operator adds up the restarts of all containers, and gives up when the sum
// reaches the limit; with ExitCode it makes new pods, which it does not count.
int64_t backoff_limit(const Json& all, const std::string& kind) {
  const int64_t backoff = all["backoff"].get<int64_t>(), hosts = all["hosts_count"].get<int64_t>();
  if (kind != "jaxjob") return backoff * hosts;
  return backoff == 0 || all["restart_policy"] == "ExitCode" ? backoff : backoff * hosts + 1;
}

// The PersistentVolumeClaims to mount. Throws Error if a path is used twice.
Json mounted_volumes(const Json& all) {
  Json out = Json::array();
  if (all.contains("checkpoint_claim"))
    out.push_back({{"name", "checkpoints"},
                   {"claim", all["checkpoint_claim"]},
                   {"path", all["checkpoint_path"]},
                   {"read_only", false}});
  for (const Json& each : all["volumes"]) {
    const ClaimMount mount = parse_claim_mount(each);
    out.push_back({{"name", fmt::format("volume-{}", out.size())},
                   {"claim", mount.claim},
                   {"path", mount.path},
                   {"read_only", mount.read_only}});
  }
  std::vector<std::string> taken = {"/tmp", kTokenFolder, "/dev/shm"};
  for (const Json& each : out) {
    std::string path = each["path"];
    while (path.ends_with('/')) path.pop_back();
    if (std::ranges::find(taken, path) != taken.end())
      throw_error("variables: {} is the mount path of two volumes; mount {} elsewhere", path,
                  each["claim"].get<std::string>());
    taken.push_back(path);
  }
  return out;
}

// The taints that a lost node gets, that of the GPUs, and those of the user.
Json all_tolerations(const Json& all) {
  Json out = Json::array();
  for (const char* taint : {"not-ready", "unreachable"})
    out.push_back({{"key", fmt::format("node.kubernetes.io/{}", taint)},
                   {"operator", "Exists"},
                   {"effect", "NoExecute"},
                   {"tolerationSeconds", all["node_loss_seconds"]}});
  if (all["gpu_count"] != 0)
    out.push_back({{"key", all["gpu_resource"]}, {"operator", "Exists"}, {"effect", "NoSchedule"}});
  for (const Json& each : all["tolerations"]) out.push_back(each);
  return out;
}

// Turns an object into a list of {name, value}, over which a template can loop.
void list_items(Json& object) {
  Json list = Json::array();
  for (const auto& [name, value] : object.items()) list.push_back({{"name", name}, {"value", value}});
  object = std::move(list);
}

// Sets the defaults that depend on the number of GPUs.
void set_resources(Json& all) {
  const Json gpus = all["gpus"], devices = all["local_device_count"];
  const int64_t count = gpus == false       ? 0
                        : gpus != true      ? gpus.get<int64_t>()
                        : devices.is_null() ? 1
                                            : devices.get<int64_t>();
  all["gpu_count"] = count;
  set_default(all, "cpu", fmt::format("{}", count > 0 ? 4 * count : 1));
  set_default(all, "memory", fmt::format("{}Gi", count > 0 ? 16 * count : 2));
  set_default(all, "shm", count > 0 ? Json("1Gi") : Json());
  for (const char* name : {"cpu", "cpu_limit", "memory", "ephemeral_storage", "shm"})  // Kubernetes prints strings
    if (all.contains(name) && all[name].is_number()) all[name] = all[name].dump();
  Json requests = Json::object(), limits = Json::object();
  const auto add = [&](Json& to, const char* resource, const char* name) {
    if (const auto found = all.find(name); found != all.end() && !found->is_null()) to[resource] = *found;
  };
  add(requests, "cpu", "cpu");
  add(limits, "cpu", "cpu_limit");
  for (Json* each : {&requests, &limits}) {
    add(*each, "memory", "memory");
    add(*each, "ephemeral-storage", "ephemeral_storage");
  }
  if (count > 0) limits[all["gpu_resource"].get<std::string>()] = count;
  all["requests"] = std::move(requests);
  all["limits"] = std::move(limits);
}

// Sets the variables that users cannot set.
void derive(Json& all, const VariablesOptions& options) {
  const bool jaxjob = options.kind == "jaxjob";
  all["kind"] = options.kind;
  all["container"] = jaxjob ? "jax" : "lockstep";
  all["port_name"] = jaxjob ? "jaxjob-port" : "coordinator";
  all["backoff_limit"] = backoff_limit(all, options.kind);
  all["token_folder"] = kTokenFolder;
  all["token_file"] = fmt::format("{}/token", kTokenFolder);
  if (all["data_ports"].is_string()) {
    const PortNumbers ports = parse_port_numbers(all["data_ports"]);
    all["first_data_port"] = ports.first;
    all["last_data_port"] = ports.last;
  } else if (all["network_policy"] == true) {
    throw_error("variables: network_policy is true, but data_ports is null; set it to a range such as 61000-64999");
  }
  all["volumes"] = mounted_volumes(all);
  all["tolerations"] = all_tolerations(all);
  for (const char* name : {"env", "labels", "annotations"}) list_items(all[name]);
  if (const auto found = all.find("image_pull_secrets"); found != all.end())
    for (Json& each : *found) each = {{"name", each}};
}

}  // namespace

const std::vector<std::string>& manifest_kinds() {
  static const std::vector<std::string> kinds = {"indexed-job", "jaxjob", "jobset", "trainjob"};
  return kinds;
}

const std::vector<ManifestVariable>& manifest_variables() {
  static const std::vector<ManifestVariable> shown = [] {
    std::vector<ManifestVariable> out;
    for (const VariableRow& row : variable_rows()) out.push_back(row.shown);
    return out;
  }();
  return shown;
}

Json complete_variables(const Json& given, const VariablesOptions& options) {
  check_all(given, options);
  Json all = given;
  check_together(all, options);
  set_default(all, "hosts_count", 1);
  set_default(all, "local_device_count", 1);
  set_default(all, "name", "lockstep");
  set_default(all, "namespace", "");
  set_default(all, "service", all["name"]);
  set_default(all, "image", "lockstep:" LOCKSTEP_VERSION);
  set_default(all, "env", Json::object());
  set_default(all, "gpus", false);
  set_default(all, "gpu_resource", "nvidia.com/gpu");
  set_default(all, "labels", Json::object());
  set_default(all, "annotations", Json::object());
  set_default(all, "volumes", Json::array());
  set_default(all, "tolerations", Json::array());
  set_default(all, "ephemeral_storage", "4Gi");
  set_default(all, "data_ports", "61000-64999");
  set_default(all, "network_policy", false);
  set_default(all, "safe_to_evict", false);
  set_default(all, "initialization_timeout", 1800);
  set_default(all, "node_loss_seconds", 30);
  set_default(all, "restart_policy", "OnFailure");
  set_default(all, "port", options.kind == "jaxjob" ? 6666 : 55527);
  set_default(all, "checkpoint_path", "/checkpoints");
  set_default(all, "backoff", 0);
  set_default(all, "grace", 120);
  set_default(all, "suspend", false);
  set_default(all, "user", 65532);
  set_default(all, "runtime", "jax-distributed");
  // Replaces the command of the runtime.
  if (options.kind == "trainjob") set_default(all, "command", Json::array({"lockstep"}));
  if (!all.contains("args")) {
    all["args"] = Json::array({"train"});
    if (all.contains("checkpoint_claim"))
      for (const std::string& word : {std::string("--checkpoint-dir"),
                                      all["checkpoint_path"].get<std::string>() + "/" + all["name"].get<std::string>()})
        all["args"].push_back(word);
  }
  if (!all.contains("token_secret")) {
    all["token_secret"] = all["name"].get<std::string>() + "-token";
    if (!all.contains("token") && options.make_token) all["token"] = options.make_token();
  }
  set_resources(all);
  derive(all, options);
  return all;
}

void set_variable(Json& variables, const std::string& assignment) {
  const size_t at = assignment.find('=');
  if (at == 0 || at == std::string::npos)
    throw_error("variables: \"{}\" is not NAME=VALUE; write it as in hosts_count=2", printable(assignment));
  const std::string name = assignment.substr(0, at), text = assignment.substr(at + 1);
  try {
    variables[name] = parse_json<Json>(text, fmt::format("variables: {}", printable(name)), kVariableLimits);
  } catch (const JsonSyntaxError&) {
    variables[name] = text;
  }
}

Json parse_variables(const std::string& text, const std::string& source) {
  try {
    Json value = parse_json<Json>(text, source, kVariableLimits);
    if (!value.is_object()) throw_error("{}: expected an object, such as {{\"hosts_count\": 2}}", source);
    return value;
  } catch (const JsonSyntaxError& error) {
    throw_error("{}:{}: invalid JSON; write an object such as {{\"hosts_count\": 2, \"local_device_count\": 2}}",
                source, error.line);
  }
}

}  // namespace lockstep
