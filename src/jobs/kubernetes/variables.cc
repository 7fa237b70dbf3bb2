#include "jobs/kubernetes/variables.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/names.h"
#include "lockstep/version.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostHosts = 4096, kMostSeconds = 1'000'000'000;
// Pods are called JOB-worker-0-4095 at most, and that is a name of at most 63 letters.
constexpr size_t kLongestResourceName = 46;

enum class VariableType { whole, text, flag, list, texts, name, quantity, gpus };

struct VariableRow {
  ManifestVariable shown;
  VariableType type;
  int64_t low = 0, high = 0;                                 // of whole numbers
  const char* kinds = "indexed-job jaxjob jobset trainjob";  // that have it
};

constexpr const char* kNotTrainJob = "indexed-job jaxjob jobset";

const std::vector<VariableRow>& rows() {
  static const std::vector<VariableRow> all = {
      {{"hosts_count", "a whole number", "pods, one process in each; default 1"}, VariableType::whole, 1, kMostHosts},
      {{"local_device_count", "a whole number", "devices of each process: virtual CPU devices, or GPUs; default 1"},
       VariableType::whole,
       1,
       4096},
      {{"name", "a name", "of the job; default lockstep"}, VariableType::name},
      {{"namespace", "a name", "default: that of kubectl"}, VariableType::name},
      {{"service", "a name", "of the headless Service; default: the job's name"},
       VariableType::name,
       0,
       0,
       "indexed-job"},
      {{"image", "a text", "default lockstep:" LOCKSTEP_VERSION}, VariableType::text},
      {{"image_pull_policy", "Always, IfNotPresent or Never", "default: the cluster's"},
       VariableType::text,
       0,
       0,
       kNotTrainJob},
      {{"command", "a list of texts", "the program; default: the image's, which is lockstep"}, VariableType::list},
      {{"args", "a list of texts", "its arguments; default [\"train\"], with --checkpoint-dir where there is a claim"},
       VariableType::list},
      {{"env", "an object of texts", "further variables of the process"}, VariableType::texts},
      {{"gpus", "true, false or a number", "GPUs of each pod; true: local_device_count; default false"},
       VariableType::gpus},
      {{"gpu_resource", "a text", "what the cluster calls them; default nvidia.com/gpu"}, VariableType::text},
      {{"cpu", "a quantity", "cores asked for, such as 2 or \"500m\"; default 1"}, VariableType::quantity},
      {{"memory", "a quantity", "asked for, and the limit, such as \"2Gi\"; default \"2Gi\""}, VariableType::quantity},
      {{"port", "a whole number", "where process 0 listens; default 55527, of a jaxjob 6666"},
       VariableType::whole,
       1,
       65535,
       kNotTrainJob},
      {{"checkpoint_claim", "a name", "of a PersistentVolumeClaim that all pods may write; default: none"},
       VariableType::name},
      {{"checkpoint_path", "a text", "where it is mounted; default /checkpoints"}, VariableType::text},
      {{"token_secret", "a name", "of a Secret that is there, whose key token is used; default: one is made"},
       VariableType::name},
      {{"token", "a text", "of the Secret that is made; default: 32 random bytes"}, VariableType::text},
      {{"backoff", "a whole number", "how often all processes may be started again; default 0"},
       VariableType::whole,
       0,
       10000,
       kNotTrainJob},
      {{"active_deadline", "a whole number", "seconds after which the job is ended"},
       VariableType::whole,
       1,
       kMostSeconds},
      {{"ttl", "a whole number", "seconds after its end until the job is removed; default: never"},
       VariableType::whole,
       0,
       kMostSeconds,
       kNotTrainJob},
      {{"grace", "a whole number", "seconds between SIGTERM and SIGKILL, for a last checkpoint; default 120"},
       VariableType::whole,
       0,
       kMostSeconds},
      {{"suspend", "true or false", "make the job without starting it; default false"}, VariableType::flag},
      {{"user", "a whole number", "user and group of the process, not root; default 65532, as in the image"},
       VariableType::whole,
       1,
       2147483647},
      {{"node_selector", "an object of texts", "labels of the nodes to run on"}, VariableType::texts},
      {{"runtime", "a name", "the ClusterTrainingRuntime; default jax-distributed"},
       VariableType::name,
       0,
       0,
       "trainjob"},
  };
  return all;
}

const VariableRow* find_row(const std::string& name) {
  for (const VariableRow& row : rows())
    if (name == row.shown.name) return &row;
  return nullptr;
}

[[noreturn]] void wrong(const std::string& name, const Json& value, const std::string& needed) {
  throw_error("variables: {} is {}; {}", name, value.dump(-1, ' ', false, Json::error_handler_t::replace), needed);
}

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// As Kubernetes wants labels of DNS: small letters, digits and hyphens, from a letter to a letter or digit.
bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= 63 && text[0] >= 'a' && text[0] <= 'z' && is_lower_or_digit(text.back()) &&
         std::ranges::all_of(text, [](char c) { return is_lower_or_digit(c) || c == '-'; });
}

// 1, "500m", "2Gi", "1.5": a number and what multiplies it.
bool is_quantity(const std::string& text) {
  static const std::vector<std::string> suffixes = {"", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi"};
  size_t at = 0, digits = 0, points = 0;
  for (; at < text.size() && ((text[at] >= '0' && text[at] <= '9') || text[at] == '.'); ++at)
    ++(text[at] == '.' ? points : digits);
  return digits > 0 && points <= 1 && text[0] != '.' && text[at - 1] != '.' &&
         std::ranges::find(suffixes, text.substr(at)) != suffixes.end() &&
         text.substr(0, at).find_first_not_of("0.") != std::string::npos;
}

bool is_printable(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0x20; });
}

void check_whole(const VariableRow& row, const Json& value) {
  const auto in_range = [&] {
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return false;
    return value.is_number_integer() && value.get<int64_t>() >= row.low && value.get<int64_t>() <= row.high;
  };
  if (!in_range())
    wrong(row.shown.name, value, fmt::format("a whole number from {} to {} is needed", row.low, row.high));
}

void check(const VariableRow& row, const Json& value) {
  const std::string name = row.shown.name;
  const bool text = value.is_string();
  switch (row.type) {
    case VariableType::whole:
      return check_whole(row, value);
    case VariableType::flag:
      if (!value.is_boolean()) wrong(name, value, "true or false is needed");
      return;
    case VariableType::text:
      if (!text || value.get<std::string>().empty() || !is_printable(value)) wrong(name, value, "a text is needed");
      return;
    case VariableType::name:
      if (!text || !is_name(value))
        wrong(name, value, "a name of small letters, digits and hyphens, beginning with a letter, is needed");
      if (name == "name" && value.get<std::string>().size() > kLongestResourceName)
        wrong(name, value,
              fmt::format("it has {} letters, and with what is put behind it in the names of pods only {} fit",
                          value.get<std::string>().size(), kLongestResourceName));
      return;
    case VariableType::quantity:
      if (!(value.is_number() && value.get<double>() > 0) && !(text && is_quantity(value)))
        wrong(name, value, "a quantity is needed, such as 2, \"500m\" or \"2Gi\"");
      return;
    case VariableType::list:
      if (!value.is_array() || !std::ranges::all_of(value, [](const Json& each) { return each.is_string(); }))
        wrong(name, value, "a list of texts is needed, such as [\"train\", \"--epochs\", \"8\"]");
      return;
    case VariableType::texts:
      if (!value.is_object() || !std::ranges::all_of(value, [](const Json& each) { return each.is_string(); }))
        wrong(name, value, "an object of texts is needed, such as {\"LOCKSTEP_VERBOSE\": \"1\"}");
      return;
    case VariableType::gpus:
      if (!value.is_boolean() &&
          !(value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= 1024))
        wrong(name, value, "true, false or a number from 0 to 1024 is needed");
      return;
  }
}

void check_all(const Json& given, const VariablesOptions& options) {
  if (!given.is_object()) throw_error("variables: an object is needed, such as {{\"hosts_count\": 2}}");
  for (const auto& [name, value] : given.items()) {
    const VariableRow* row = find_row(name);
    if (!row && options.others) continue;
    if (!row) {
      std::vector<std::string> names;
      for (const VariableRow& each : rows()) names.push_back(each.shown.name);
      throw_error("variables: there is no \"{}\";{} there are {}", name, suggestion(name, names),
                  fmt::join(names, ", "));
    }
    if (std::string_view(row->kinds).find(options.kind) == std::string_view::npos)
      throw_error("variables: the kind {} has no {}; leave it out, or choose another --kind ({})", options.kind, name,
                  row->kinds);
    check(*row, value);
  }
}

// Of a pair that contradicts itself.
void check_together(const Json& all) {
  if (all.contains("token") && all.contains("token_secret"))
    throw_error(
        "variables: token is given and token_secret too; keep token_secret where there is such a Secret, else "
        "token");
  if (const auto policy = all.find("image_pull_policy"); policy != all.end()) {
    const std::string text = *policy;
    if (text != "Always" && text != "IfNotPresent" && text != "Never")
      wrong("image_pull_policy", text, "Always, IfNotPresent or Never is needed");
  }
  if (const auto path = all.find("checkpoint_path"); path != all.end() && !path->get<std::string>().starts_with('/'))
    wrong("checkpoint_path", *path, "a path from the root is needed, such as /checkpoints");
}

void set_default(Json& all, const char* name, Json value) {
  if (!all.contains(name)) all[name] = std::move(value);
}

// Those that users do not set: what follows from the others.
void derive(Json& all, const VariablesOptions& options) {
  const bool jaxjob = options.kind == "jaxjob";
  all["kind"] = options.kind;
  all["container"] = jaxjob ? "jax" : "lockstep";
  all["port_name"] = jaxjob ? "jaxjob-port" : "coordinator";
  // Each pod that fails counts, and when one is lost all others end with 75.
  all["backoff_limit"] = all["backoff"].get<int64_t>() * all["hosts_count"].get<int64_t>();
  const Json gpus = all["gpus"];
  all["gpu_count"] =
      gpus.is_boolean() ? (gpus.get<bool>() ? all["local_device_count"].get<int64_t>() : 0) : gpus.get<int64_t>();
  Json list = Json::array();
  for (const auto& [name, value] : all["env"].items()) list.push_back({{"name", name}, {"value", value}});
  all["env"] = std::move(list);
  for (const char* name : {"cpu", "memory"})  // 2 and "2" are the same to Kubernetes, but its own form is the text
    if (all[name].is_number()) all[name] = all[name].dump();
}

}  // namespace

const std::vector<std::string>& manifest_kinds() {
  static const std::vector<std::string> kinds = {"indexed-job", "jaxjob", "jobset", "trainjob"};
  return kinds;
}

const std::vector<ManifestVariable>& manifest_variables() {
  static const std::vector<ManifestVariable> shown = [] {
    std::vector<ManifestVariable> out;
    for (const VariableRow& row : rows()) out.push_back(row.shown);
    return out;
  }();
  return shown;
}

Json complete_variables(const Json& given, const VariablesOptions& options) {
  check_all(given, options);
  Json all = given;
  check_together(all);
  set_default(all, "hosts_count", 1);
  set_default(all, "local_device_count", 1);
  set_default(all, "name", "lockstep");
  set_default(all, "namespace", "");
  set_default(all, "service", all["name"]);
  set_default(all, "image", "lockstep:" LOCKSTEP_VERSION);
  set_default(all, "env", Json::object());
  set_default(all, "gpus", false);
  set_default(all, "gpu_resource", "nvidia.com/gpu");
  set_default(all, "cpu", "1");
  set_default(all, "memory", "2Gi");
  set_default(all, "port", options.kind == "jaxjob" ? 6666 : 55527);
  set_default(all, "checkpoint_path", "/checkpoints");
  set_default(all, "backoff", 0);
  set_default(all, "grace", 120);
  set_default(all, "suspend", false);
  set_default(all, "user", 65532);
  set_default(all, "runtime", "jax-distributed");
  // A runtime may bring a command of its own, which this one replaces.
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
  derive(all, options);
  return all;
}

void set_variable(Json& variables, const std::string& assignment) {
  const size_t at = assignment.find('=');
  if (at == 0 || at == std::string::npos)
    throw_error("variables: \"{}\" sets nothing; write NAME=VALUE, such as hosts_count=2", assignment);
  const std::string text = assignment.substr(at + 1);
  Json value = Json::parse(text, nullptr, false);
  variables[assignment.substr(0, at)] = value.is_discarded() ? Json(text) : std::move(value);
}

Json parse_variables(const std::string& text, const std::string& source) {
  try {
    Json value = Json::parse(text);
    if (!value.is_object()) throw_error("{}: an object is needed, such as {{\"hosts_count\": 2}}", source);
    return value;
  } catch (const Json::parse_error& error) {
    const size_t end = std::min<size_t>(error.byte > 0 ? error.byte - 1 : 0, text.size());
    const auto lines = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    throw_error("{}:{}: this is no JSON; an object like {{\"hosts_count\": 2, \"local_device_count\": 2}} is needed",
                source, lines + 1);
  }
}

}  // namespace lockstep
