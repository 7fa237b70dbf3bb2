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

constexpr int64_t kMostHosts = 4096, kMostSeconds = 1'000'000'000;
// Pods are called JOB-worker-0-4095 at most, and that is a name of at most 63 letters.
constexpr size_t kLongestResourceName = 46;

constexpr JsonLimits kVariableLimits = {.bytes = 1 << 20, .depth = 16, .values = 100'000};

enum class VariableType { whole, text, image, flag, list, env, labels, name, resource, quantity, gpus };

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
      {{"image", "a text", "default lockstep:" LOCKSTEP_VERSION}, VariableType::image},
      {{"image_pull_policy", "Always, IfNotPresent or Never", "default: the cluster's"},
       VariableType::text,
       0,
       0,
       kNotTrainJob},
      {{"command", "a list of texts", "the program; default: the image's, which is lockstep"}, VariableType::list},
      {{"args", "a list of texts", "its arguments; default [\"train\"], with --checkpoint-dir where there is a claim"},
       VariableType::list},
      {{"env", "an object of texts", "further variables of the process"}, VariableType::env},
      {{"gpus", "true, false or a number", "GPUs of each pod; true: local_device_count; default false"},
       VariableType::gpus},
      {{"gpu_resource", "a text", "what the cluster calls them; default nvidia.com/gpu"}, VariableType::resource},
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
      {{"node_selector", "an object of texts", "labels of the nodes to run on"}, VariableType::labels},
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
  throw_error("variables: {} is {}; {}", name, printable_json(value), needed);
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

bool is_letter_or_digit(char c) { return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z'); }

// The last part of a label's key, or its value: from a letter or digit to one, with hyphens, underscores and points.
bool is_label_text(std::string_view text) {
  return !text.empty() && text.size() <= 63 && is_letter_or_digit(text.front()) && is_letter_or_digit(text.back()) &&
         std::ranges::all_of(text, [](char c) { return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.'; });
}

// Names of DNS with points between them.
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

// "zone", "topology.kubernetes.io/zone".
bool is_label_key(std::string_view text) {
  const size_t slash = text.find('/');
  return slash == text.npos ? is_label_text(text)
                            : is_domain(text.substr(0, slash)) && is_label_text(text.substr(slash + 1));
}

// As far as it can be told without asking a registry: no spaces, and no signs that no image has.
bool is_image(std::string_view text) {
  return text.size() <= 1024 && is_letter_or_digit(text.front()) && is_letter_or_digit(text.back()) &&
         std::ranges::all_of(text, [](char c) {
           return is_letter_or_digit(c) || std::string_view("._-/:@").find(c) != std::string_view::npos;
         });
}

bool is_variable_name(std::string_view text) {
  const auto is_sign = [](char c) { return c == '_' || c == '-' || c == '.'; };
  return !text.empty() && text.size() <= 253 && !(text.front() >= '0' && text.front() <= '9') &&
         std::ranges::all_of(text, [&](char c) { return is_letter_or_digit(c) || is_sign(c); });
}

void check_texts(const std::string& name, const Json& value, const char* example) {
  if (!value.is_object() || !std::ranges::all_of(value, [](const Json& each) { return each.is_string(); }))
    wrong(name, value, fmt::format("an object of texts is needed, such as {}", example));
}

void check_env(const std::string& name, const Json& value) {
  check_texts(name, value, "{\"LOCKSTEP_VERBOSE\": \"1\"}");
  for (const auto& [key, text] : value.items()) {
    if (!is_variable_name(key))
      throw_error(
          "variables: {} has \"{}\", which is no name of a variable; letters, digits and _ - . are needed, and "
          "no digit first",
          name, printable(key));
    if (key == "LOCKSTEP_TOKEN")
      throw_error(
          "variables: {} has LOCKSTEP_TOKEN, which would be in the manifest for all to read; set token or "
          "token_secret instead",
          name);
    if (text.get_ref<const std::string&>().find('\0') != std::string::npos)
      throw_error("variables: {} has \"{}\" with a NUL character in its value; remove it", name, printable(key));
  }
}

void check_labels(const std::string& name, const Json& value) {
  check_texts(name, value, "{\"zone\": \"a\"}");
  for (const auto& [key, text] : value.items()) {
    if (!is_label_key(key))
      throw_error(
          "variables: {} has the key \"{}\", which is no label; letters, digits and - _ . are needed, at most 63, "
          "after a domain and / where there is one",
          name, printable(key));
    if (!text.get_ref<const std::string&>().empty() && !is_label_text(text.get_ref<const std::string&>()))
      throw_error(
          "variables: {} has \"{}\" for {}, which is no value of a label; letters, digits and - _ . are needed, "
          "at most 63",
          name, printable(text.get<std::string>()), key);
  }
}

// Names that the built-in templates set: twice the same name would be decided by their order.
void check_own_names(const Json& env, const VariablesOptions& options) {
  static const std::vector<std::pair<const char*, const char*>> own = {
      {"LOCKSTEP_NUM_PROCESSES", "hosts_count"},
      {"LOCKSTEP_COORDINATOR_PORT", "port"},
      {"LOCKSTEP_NUM_CPU_DEVICES", "local_device_count"}};
  if (options.others) return;
  for (const auto& [name, instead] : own)
    if (env.contains(name))
      throw_error("variables: env has {}, which the manifest sets; set {} instead", name, instead);
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
    case VariableType::env:
      return check_env(name, value);
    case VariableType::labels:
      return check_labels(name, value);
    case VariableType::image:
      if (!text || value.get<std::string>().empty() || !is_image(value.get_ref<const std::string&>()))
        wrong(name, value, "the name of an image is needed, without spaces, such as registry.example/team/lockstep:1");
      return;
    case VariableType::resource:
      if (!text || !is_label_key(value.get_ref<const std::string&>()))
        wrong(name, value, "the name of a resource is needed, such as nvidia.com/gpu");
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
      throw_error("variables: there is no \"{}\";{} there are {}", printable(name), suggestion(name, names),
                  fmt::join(names, ", "));
    }
    if (std::string_view(row->kinds).find(options.kind) == std::string_view::npos)
      throw_error("variables: the kind {} has no {}; leave it out, or choose another --kind ({})", options.kind, name,
                  row->kinds);
    check(*row, value);
  }
}

// Of a pair that contradicts itself.
void check_together(const Json& all, const VariablesOptions& options) {
  if (const auto env = all.find("env"); env != all.end()) check_own_names(*env, options);
  if (all.contains("token") && all.contains("token_secret"))
    throw_error(
        "variables: token is given and token_secret too; keep token_secret where there is such a Secret, else "
        "token");
  if (const auto token = all.find("token"); token != all.end())
    static_cast<void>(checked_token(token->get<std::string>(), "the variable token"));
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
  // Of the pods that end together only the one that failed first counts: see failure_policy.yaml.j2.
  all["backoff_limit"] = all["backoff"].get<int64_t>();
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
    throw_error("variables: \"{}\" sets nothing; write NAME=VALUE, such as hosts_count=2", printable(assignment));
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
    if (!value.is_object()) throw_error("{}: an object is needed, such as {{\"hosts_count\": 2}}", source);
    return value;
  } catch (const JsonSyntaxError& error) {
    throw_error("{}:{}: this is no JSON; an object like {{\"hosts_count\": 2, \"local_device_count\": 2}} is needed",
                source, error.line);
  }
}

}  // namespace lockstep
