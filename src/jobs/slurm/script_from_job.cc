#include "jobs/slurm/script_from_job.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/names.h"
#include "jobs/model/manifest.h"
#include "jobs/stand_in.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "slurm.lockstep/";
constexpr int kDefaultSignalSeconds = 120;  // but at most half of the time limit

const Json& field_at(const Json& value, std::initializer_list<const char*> path) {
  static const Json kNone;
  const Json* here = &value;
  for (const char* key : path) {
    if (!here->is_object() || !here->contains(key)) return kNone;
    here = &(*here)[key];
  }
  return *here;
}

// The annotations with Lockstep's prefix, by their name without it.
std::map<std::string, std::string> annotations_of(const Job& job) {
  static const std::vector<std::string> kNames = {"account",   "constraint", "modules", "mpi",  "nodes",
                                                  "partition", "runtime",    "sbatch",  "time", "signal-seconds"};
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : field_at(job.manifest, {"metadata", "annotations"}).items()) {
    if (!key.starts_with(kPrefix)) continue;
    const std::string name = key.substr(kPrefix.size());
    if (std::ranges::find(kNames, name) == kNames.end())
      throw_unknown_name(fmt::format("apply: annotation {} of {}", kPrefix, job.name), name, kNames);
    out[name] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return out;
}

// Parses a non-negative integer. `what` names the value in the error message.
int parse_count(const std::string& text, std::string_view what, const Job& job) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    throw_error("apply: {} of {} is \"{}\"; use a non-negative integer", what, job.name, text);
  return value;
}

// Splits at commas, spaces and newlines.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c != ',' && c != ' ' && c != '\n')
      out.back() += c;
    else if (!out.back().empty())
      out.emplace_back();
  }
  if (out.back().empty()) out.pop_back();
  return out;
}

constexpr double kMaxUnits = 1e6;  // CPUs or GPUs of a replica
constexpr double kMaxMemoryBytes = 0x1p60;

// Parses a limit of the container: "500m", "2", "8Gi". Returns 0 if the manifest has none. Throws Error above
// `most`.
double quantity(const Json& limits, const char* name, double most, const Job& job) {
  const Json& value = field_at(limits, {name});
  if (value.is_null()) return 0;
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  static const std::map<std::string, double, std::less<>> kUnits = {
      {"", 1},     {"m", 1e-3},    {"k", 1e3},     {"M", 1e6},     {"G", 1e9},
      {"T", 1e12}, {"Ki", 0x1p10}, {"Mi", 0x1p20}, {"Gi", 0x1p30}, {"Ti", 0x1p40}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto unit = kUnits.find(std::string_view(end, static_cast<size_t>(text.data() + text.size() - end)));
  if (error != std::errc() || unit == kUnits.end() || !(number >= 0))
    throw_error("apply: the limit {} of {} is \"{}\"; use a quantity such as 2, 500m or 8Gi", name, job.name, text);
  if (number * unit->second > most)
    throw_error("apply: the limit {} of {} is \"{}\"; the maximum is {:.0f}", name, job.name, text, most);
  return number * unit->second;
}

const Json& container_of(const Job& job) {
  const Json& spec = field_at(job.manifest, {"spec"});
  const Json& list = field_at(job.kind == JobKind::jax_job ? field_at(spec, {"jaxReplicaSpecs", "Worker"}) : spec,
                              {"template", "spec", "containers"});
  if (!list.is_array() || list.empty()) return field_at(spec, {"none"});
  const auto jax = std::ranges::find_if(list, [](const Json& each) { return field_at(each, {"name"}) == "jax"; });
  return jax == list.end() ? list.front() : *jax;
}

void set_limits(SlurmScript& script, const Job& job) {
  const Json& limits = field_at(container_of(job), {"resources", "limits"});
  script.cpus_per_task = static_cast<int>(std::ceil(quantity(limits, "cpu", kMaxUnits, job)));
  if (const double bytes = quantity(limits, "memory", kMaxMemoryBytes, job); bytes > 0)
    script.memory_per_cpu =
        fmt::format("{}M", static_cast<int64_t>(std::ceil(bytes / 0x1p20 / std::max(script.cpus_per_task, 1))));
  const int gpus = static_cast<int>(std::ceil(quantity(limits, "nvidia.com/gpu", kMaxUnits, job)));
  if (script.nodes == 0) {
    script.gpus_per_task = gpus;
    return;
  }
  if (script.tasks % script.nodes != 0)
    throw_error("apply: {} has {} on {}; the number of replicas must be a multiple of the number of nodes", job.name,
                counted(script.tasks, "replica"), counted(script.nodes, "node"));
  script.tasks_per_node = script.tasks / script.nodes;
  script.gpus_per_node = gpus * script.tasks_per_node;
}

void set_restarts(SlurmScript& script, const Job& job) {
  if (job.kind == JobKind::indexed_job)
    script.requeue = Requeue::any_failure;
  else if (job.spec.restart == RestartPolicy::never)
    script.requeue = Requeue::never;
  else
    script.requeue = job.spec.restart == RestartPolicy::exit_code ? Requeue::retryable : Requeue::any_failure;
  if (job.spec.backoff_limit)
    script.max_requeues = static_cast<int>(std::clamp<int64_t>(*job.spec.backoff_limit, 0, 1'000'000));
}

void set_times(SlurmScript& script, const Job& job, const std::map<std::string, std::string>& annotations) {
  const auto time = annotations.find("time");
  if (time != annotations.end())
    script.time = time->second;
  else if (job.spec.active_deadline)
    script.time = fmt::format("{}", std::max<int64_t>(1, (*job.spec.active_deadline + 59) / 60));
  const auto signal = annotations.find("signal-seconds");
  if (signal != annotations.end()) {
    script.signal_seconds = parse_count(signal->second, "signal-seconds", job);
    return;
  }
  // SIGUSR1 would kill a program without a handler for it, so only training gets it by default.
  const std::vector<std::string>& words = script.per_task.empty() ? script.command : script.per_task.front().command;
  if (std::ranges::find(words, "train") == words.end()) return;
  script.signal_seconds = kDefaultSignalSeconds;
  if (script.time.empty()) return;
  if (const auto limit = parse_slurm_time(script.time, "apply"))
    script.signal_seconds = static_cast<int>(std::min<int64_t>(kDefaultSignalSeconds, limit->count() / 2));
}

SlurmScript::Task task_of(const Job& job, int index, const SlurmScript& script, const std::string& program) {
  const Container& container = job.spec.container;
  SlurmScript::Task out{.env = replica_env(job, index)};
  if (const std::string name = stand_in_of(container); !name.empty() && script.runtime == SlurmRuntime::none) {
    out.command = {find_stand_in(name, program)};
    return out;
  }
  for (const std::string& word : container.command) out.command.push_back(expand_variables(word, out.env));
  if (out.command.empty())
    out.command.push_back(program);
  else if (out.command[0] == "lockstep")
    out.command[0] = program;
  else if (is_image_program(out.command[0]) && script.runtime == SlurmRuntime::none)
    out.command[0] = find_stand_in(out.command[0], program);
  for (const std::string& word : container.args) out.command.push_back(expand_variables(word, out.env));
  if (container.command.empty() && container.args.empty()) out.command.push_back("train");
  return out;
}

void set_commands(SlurmScript& script, const Job& job, const std::string& program) {
  SlurmScript::Task first = task_of(job, 0, script, program);
  bool same = true;
  for (int i = 1; i < job.spec.replicas && same; ++i) same = task_of(job, i, script, program) == first;
  if (same) {
    script.env = std::move(first.env);
    script.command = std::move(first.command);
    return;
  }
  for (int i = 0; i < job.spec.replicas; ++i) script.per_task.push_back(task_of(job, i, script, program));
}

}  // namespace

SlurmScript slurm_script_from_job(const Job& job, const SlurmScriptContext& context,
                                  const std::function<void(std::string_view)>& note) {
  const std::map<std::string, std::string> annotations = annotations_of(job);
  const auto text = [&](const char* name) {
    const auto found = annotations.find(name);
    return found == annotations.end() ? std::string() : found->second;
  };
  SlurmScript script{.name = job.name,
                     .tasks = job.spec.replicas,
                     .partition = text("partition"),
                     .account = text("account"),
                     .constraint = text("constraint"),
                     .sbatch = words_of(text("sbatch")),
                     .modules = words_of(text("modules")),
                     .mpi = text("mpi"),
                     .logs = context.logs,
                     .first_attempt = context.first_attempt};
  const std::string& folder = job.spec.container.folder;
  script.folder = folder.empty() ? context.folder : folder.starts_with('/') ? folder : context.folder + "/" + folder;
  if (const std::string nodes = text("nodes"); !nodes.empty()) script.nodes = parse_count(nodes, "nodes", job);
  if (const std::string runtime = text("runtime"); !runtime.empty()) {
    script.runtime = parse_slurm_runtime(runtime, "apply");
    script.image = job.spec.container.image;
  } else if (!job.spec.container.image.empty()) {
    const std::string stand_in = stand_in_of(job.spec.container);
    note(fmt::format(
        "the image {} is ignored: {} on the nodes; to run inside the image, set the annotation "
        "{}runtime: apptainer (or singularity, pyxis)",
        job.spec.container.image,
        stand_in.empty() ? "the command runs directly" : "the equivalent program " + stand_in + " runs directly",
        kPrefix));
  }
  set_commands(script, job, script.runtime == SlurmRuntime::none ? context.program : "lockstep");
  set_limits(script, job);
  set_restarts(script, job);
  set_times(script, job, annotations);
  return script;
}

}  // namespace lockstep
