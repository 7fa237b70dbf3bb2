#include "jobs/kubernetes/variables.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/names.h"
#include "base/printable.h"
#include "cluster/token.h"
#include "lockstep/version.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxManifestHosts = 4096, kMaxVariableSeconds = 1'000'000'000;
// A pod name, at most JOB-worker-0-4095 with a suffix, has at most 63 characters.
constexpr size_t kMaxJobNameLength = 46;

constexpr JsonLimits kVariableLimits = {.bytes = 1 << 20, .depth = 16, .values = 100'000};

enum class VariableType { integer, text, image, flag, list, env, labels, name, resource, quantity, gpus };

struct VariableRow {
  ManifestVariable shown;
  VariableType type;
  int64_t low = 0, high = 0;                                 // range of an integer
  const char* kinds = "indexed-job jaxjob jobset trainjob";  // the kinds that have it
};

constexpr const char* kNotTrainJob = "indexed-job jaxjob jobset";

const std::vector<VariableRow>& rows() {
  static const std::vector<VariableRow> all = {
      {{"hosts_count", "integer", "number of pods, with one process each; default 1"},
       VariableType::integer,
       1,
       kMaxManifestHosts},
      {{"local_device_count", "integer", "devices per process: virtual CPU devices or GPUs; default 1"},
       VariableType::integer,
       1,
       4096},
      {{"name", "name", "name of the job; default lockstep"}, VariableType::name},
      {{"namespace", "name", "namespace of the job; default: that of kubectl's context"}, VariableType::name},
      {{"service", "name", "name of the headless Service; default: the job's name"},
       VariableType::name,
       0,
       0,
       "indexed-job"},
      {{"image", "string", "container image; default lockstep:" LOCKSTEP_VERSION}, VariableType::image},
      {{"image_pull_policy", "Always, IfNotPresent or Never", "when to pull the image; default: the cluster's policy"},
       VariableType::text,
       0,
       0,
       kNotTrainJob},
      {{"command", "list of strings", "the program; default: the entry point of the image, lockstep"},
       VariableType::list},
      {{"args", "list of strings",
        "arguments of the program; default [\"train\"], plus --checkpoint-dir if checkpoint_claim is set"},
       VariableType::list},
      {{"env", "object of strings", "additional environment variables"}, VariableType::env},
      {{"gpus", "true, false or integer", "GPUs per pod; true: local_device_count; default false"}, VariableType::gpus},
      {{"gpu_resource", "string", "resource name of the GPUs; default nvidia.com/gpu"}, VariableType::resource},
      {{"cpu", "quantity", "CPU request, such as 2 or \"500m\"; default 1"}, VariableType::quantity},
      {{"memory", "quantity", "memory request and limit; default \"2Gi\""}, VariableType::quantity},
      {{"port", "integer", "port of the coordinator; default 55527, for a jaxjob 6666"},
       VariableType::integer,
       1,
       65535,
       kNotTrainJob},
      {{"checkpoint_claim", "name", "PersistentVolumeClaim that all pods can write; default: none"},
       VariableType::name},
      {{"checkpoint_path", "string", "mount path of checkpoint_claim; default /checkpoints"}, VariableType::text},
      {{"token_secret", "name", "existing Secret with the key token; default: a new Secret"}, VariableType::name},
      {{"token", "string", "token of the new Secret; default: 32 random bytes"}, VariableType::text},
      {{"backoff", "integer", "maximum number of restarts; default 0"}, VariableType::integer, 0, 10000, kNotTrainJob},
      {{"active_deadline", "integer", "time limit of the job in seconds; default: none"},
       VariableType::integer,
       1,
       kMaxVariableSeconds},
      {{"ttl", "integer", "seconds until a finished job is deleted; default: never"},
       VariableType::integer,
       0,
       kMaxVariableSeconds,
       kNotTrainJob},
      {{"grace", "integer", "seconds between SIGTERM and SIGKILL, to save a checkpoint; default 120"},
       VariableType::integer,
       0,
       kMaxVariableSeconds},
      {{"suspend", "true or false", "create the job without starting it; default false"}, VariableType::flag},
      {{"user", "integer", "user and group id of the process, not root; default 65532, as in the image"},
       VariableType::integer,
       1,
       2147483647},
      {{"node_selector", "object of strings", "required labels of the nodes"}, VariableType::labels},
      {{"runtime", "name", "the ClusterTrainingRuntime; default jax-distributed"},
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

[[noreturn]] void throw_invalid(const std::string& name, const Json& value, const std::string& remedy) {
  throw_error("variables: {} is {}; {}", name, printable_json(value), remedy);
}

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// A DNS label that starts with a letter: lowercase letters, digits and hyphens, ending in a letter or digit.
bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= 63 && text[0] >= 'a' && text[0] <= 'z' && is_lower_or_digit(text.back()) &&
         std::ranges::all_of(text, [](char c) { return is_lower_or_digit(c) || c == '-'; });
}

// A positive quantity of Kubernetes: 1, "500m", "2Gi", "1.5".
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

bool is_letter_or_digit(char c) { return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z'); }

// A label value, or the name in a label key: letters, digits, hyphens, underscores and dots; the first and last
// character is a letter or digit.
bool is_label_text(std::string_view text) {
  return !text.empty() && text.size() <= 63 && is_letter_or_digit(text.front()) && is_letter_or_digit(text.back()) &&
         std::ranges::all_of(text, [](char c) { return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.'; });
}

// DNS labels separated by dots.
bool is_domain(std::string_view text) {
  if (text.size() > 253) return false;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    if (part.empty() || part.size() > 63 || part.front() == '-' || part.back() == '-' ||
        !std::ranges::all_of(part, [](char c) { return is_lower_or_digit(c) || c == '-'; }))
      return false;
    begin = end + 1;
  }
  return true;
}

// A label key: "zone", "topology.kubernetes.io/zone".
bool is_label_key(std::string_view text) {
  const size_t slash = text.find('/');
  return slash == text.npos ? is_label_text(text)
                            : is_domain(text.substr(0, slash)) && is_label_text(text.substr(slash + 1));
}

// Checks only the characters, not the full grammar of image references.
bool is_image(std::string_view text) {
  return text.size() <= 1024 && is_letter_or_digit(text.front()) && is_letter_or_digit(text.back()) &&
         std::ranges::all_of(text, [](char c) {
           return is_letter_or_digit(c) || std::string_view("._-/:@").find(c) != std::string_view::npos;
         });
}

bool is_variable_name(std::string_view text) {
  const auto is_punctuation = [](char c) { return c == '_' || c == '-' || c == '.'; };
  return !text.empty() && text.size() <= 253 && !(text.front() >= '0' && text.front() <= '9') &&
         std::ranges::all_of(text, [&](char c) { return is_letter_or_digit(c) || is_punctuation(c); });
}

void check_texts(const std::string& name, const Json& value, const char* example) {
  if (!value.is_object() || !std::ranges::all_of(value, [](const Json& each) { return each.is_string(); }))
    throw_invalid(name, value, fmt::format("use an object of strings, such as {}", example));
}

void check_env(const std::string& name, const Json& value) {
  check_texts(name, value, "{\"LOCKSTEP_VERBOSE\": \"1\"}");
  for (const auto& [key, text] : value.items()) {
    if (!is_variable_name(key))
      throw_error(
          "variables: {} has \"{}\", which is not a valid variable name; use letters, digits and _ - ., and no "
          "digit first",
          name, printable(key));
    if (key == "LOCKSTEP_TOKEN")
      throw_error(
          "variables: {} has LOCKSTEP_TOKEN, which would be readable in the job's manifest; set token or "
          "token_secret instead",
          name);
    if (text.get_ref<const std::string&>().find('\0') != std::string::npos)
      throw_error("variables: {} has a NUL character in the value of \"{}\"; remove it", name, printable(key));
  }
}

void check_labels(const std::string& name, const Json& value) {
  check_texts(name, value, "{\"zone\": \"a\"}");
  for (const auto& [key, text] : value.items()) {
    if (!is_label_key(key))
      throw_error(
          "variables: {} has \"{}\", which is not a valid label key; use at most 63 letters, digits and - _ ., with an "
          "optional prefix such as example.org/",
          name, printable(key));
    if (!text.get_ref<const std::string&>().empty() && !is_label_text(text.get_ref<const std::string&>()))
      throw_error(
          "variables: {} has \"{}\" for {}, which is not a valid label value; use at most 63 letters, digits and "
          "- _ .",
          name, printable(text.get<std::string>()), key);
  }
}

// Rejects variables that the built-in templates set.
void check_reserved_env(const Json& env, const VariablesOptions& options) {
  static const std::vector<std::pair<const char*, const char*>> own = {
      {"LOCKSTEP_NUM_PROCESSES", "hosts_count"},
      {"LOCKSTEP_COORDINATOR_PORT", "port"},
      {"LOCKSTEP_NUM_CPU_DEVICES", "local_device_count"}};
  if (options.allow_unknown) return;
  for (const auto& [name, instead] : own)
    if (env.contains(name))
      throw_error("variables: env has {}, which the manifest sets; set {} instead", name, instead);
}

void check_integer(const VariableRow& row, const Json& value) {
  const auto in_range = [&] {
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return false;
    return value.is_number_integer() && value.get<int64_t>() >= row.low && value.get<int64_t>() <= row.high;
  };
  if (!in_range())
    throw_invalid(row.shown.name, value, fmt::format("use a whole number from {} to {}", row.low, row.high));
}

void check(const VariableRow& row, const Json& value) {
  const std::string name = row.shown.name;
  const bool text = value.is_string();
  switch (row.type) {
    case VariableType::integer:
      return check_integer(row, value);
    case VariableType::flag:
      if (!value.is_boolean()) throw_invalid(name, value, "use true or false");
      return;
    case VariableType::text:
      if (!text || value.get<std::string>().empty() || !is_printable(value))
        throw_invalid(name, value, "use a non-empty string without control characters");
      return;
    case VariableType::name:
      if (!text || !is_name(value))
        throw_invalid(name, value, "use at most 63 lowercase letters, digits and hyphens, starting with a letter");
      if (name == "name" && value.get<std::string>().size() > kMaxJobNameLength)
        throw_invalid(name, value,
                      fmt::format("it has {} characters; use at most {}, because pod names add a suffix",
                                  value.get<std::string>().size(), kMaxJobNameLength));
      return;
    case VariableType::quantity:
      if (!(value.is_number() && value.get<double>() > 0) && !(text && is_quantity(value)))
        throw_invalid(name, value, "use a quantity such as 2, \"500m\" or \"2Gi\"");
      return;
    case VariableType::list:
      if (!value.is_array() || !std::ranges::all_of(value, [](const Json& each) { return each.is_string(); }))
        throw_invalid(name, value, "use a list of strings, such as [\"train\", \"--epochs\", \"8\"]");
      return;
    case VariableType::env:
      return check_env(name, value);
    case VariableType::labels:
      return check_labels(name, value);
    case VariableType::image:
      if (!text || value.get<std::string>().empty() || !is_image(value.get_ref<const std::string&>()))
        throw_invalid(name, value, "use an image name without spaces, such as registry.example/team/lockstep:1");
      return;
    case VariableType::resource:
      if (!text || !is_label_key(value.get_ref<const std::string&>()))
        throw_invalid(name, value, "use a resource name such as nvidia.com/gpu");
      return;
    case VariableType::gpus:
      if (!value.is_boolean() &&
          !(value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= 1024))
        throw_invalid(name, value, "use true, false or a number from 0 to 1024");
      return;
  }
}

void check_all(const Json& given, const VariablesOptions& options) {
  if (!given.is_object()) throw_error("variables: expected an object, such as {{\"hosts_count\": 2}}");
  for (const auto& [name, value] : given.items()) {
    const VariableRow* row = find_row(name);
    if (!row && options.allow_unknown) continue;
    if (!row) {
      std::vector<std::string> names;
      for (const VariableRow& each : rows()) names.push_back(each.shown.name);
      throw_error("variables: unknown variable \"{}\";{} known: {}", printable(name), suggestion(name, names),
                  fmt::join(names, ", "));
    }
    if (std::string_view(row->kinds).find(options.kind) == std::string_view::npos)
      throw_error("variables: kind {} has no variable {}; remove it, or choose another --kind ({})", options.kind, name,
                  row->kinds);
    check(*row, value);
  }
}

// Checks variables that depend on each other, and those with rules of their own.
void check_together(const Json& all, const VariablesOptions& options) {
  if (const auto env = all.find("env"); env != all.end()) check_reserved_env(*env, options);
  if (all.contains("token") && all.contains("token_secret"))
    throw_error(
        "variables: token and token_secret are both set; set token_secret for an existing Secret, else "
        "token");
  if (const auto token = all.find("token"); token != all.end())
    static_cast<void>(checked_token(token->get<std::string>(), "the variable token"));
  if (const auto policy = all.find("image_pull_policy"); policy != all.end()) {
    const std::string text = *policy;
    if (text != "Always" && text != "IfNotPresent" && text != "Never")
      throw_invalid("image_pull_policy", text, "use Always, IfNotPresent or Never");
  }
  if (const auto path = all.find("checkpoint_path"); path != all.end() && !path->get<std::string>().starts_with('/'))
    throw_invalid("checkpoint_path", *path, "use an absolute path such as /checkpoints");
}

void set_default(Json& all, const char* name, Json value) {
  if (!all.contains(name)) all[name] = std::move(value);
}

// Sets the variables that users cannot set.
void derive(Json& all, const VariablesOptions& options) {
  const bool jaxjob = options.kind == "jaxjob";
  all["kind"] = options.kind;
  all["container"] = jaxjob ? "jax" : "lockstep";
  all["port_name"] = jaxjob ? "jaxjob-port" : "coordinator";
  // Of all pods that fail together only the first cause counts against the limit: see failure_policy.yaml.j2.
  all["backoff_limit"] = all["backoff"].get<int64_t>();
  const Json gpus = all["gpus"];
  all["gpu_count"] =
      gpus.is_boolean() ? (gpus.get<bool>() ? all["local_device_count"].get<int64_t>() : 0) : gpus.get<int64_t>();
  Json list = Json::array();
  for (const auto& [name, value] : all["env"].items()) list.push_back({{"name", name}, {"value", value}});
  all["env"] = std::move(list);
  for (const char* name : {"cpu", "memory"})  // Kubernetes prints quantities as strings
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
  set_default(all, "cpu", "1");
  set_default(all, "memory", "2Gi");
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
