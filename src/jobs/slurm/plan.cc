#include "jobs/slurm/plan.h"

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
constexpr int kWarning = 120;  // seconds before the time is up, and at most half of it

const Json& field_at(const Json& value, std::initializer_list<const char*> path) {
  static const Json kNone;
  const Json* here = &value;
  for (const char* key : path) {
    if (!here->is_object() || !here->contains(key)) return kNone;
    here = &(*here)[key];
  }
  return *here;
}

// Those of our prefix, without it.
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

// "2", 2.
int integer_at(const std::string& text, std::string_view what, const Job& job) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    throw_error("apply: {} of {} is \"{}\"; a whole number is needed", what, job.name, text);
  return value;
}

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

constexpr double kMostUnits = 1e6;  // CPUs and GPUs of a replica
constexpr double kMostBytes = 0x1p60;

// A limit of the container: "500m", "2", "8Gi". 0 when the manifest has none. Throws Error above `most`.
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
    throw_error("apply: the limit {} of {} is \"{}\"; a quantity such as 2, 500m or 8Gi is needed", name, job.name,
                text);
  if (number * unit->second > most)
    throw_error("apply: the limit {} of {} is \"{}\"; at most {:.0f} is possible", name, job.name, text, most);
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
  script.cpus_per_task = static_cast<int>(std::ceil(quantity(limits, "cpu", kMostUnits, job)));
  if (const double bytes = quantity(limits, "memory", kMostBytes, job); bytes > 0)
    script.memory_per_cpu =
        fmt::format("{}M", static_cast<int64_t>(std::ceil(bytes / 0x1p20 / std::max(script.cpus_per_task, 1))));
  const int gpus = static_cast<int>(std::ceil(quantity(limits, "nvidia.com/gpu", kMostUnits, job)));
  if (script.nodes == 0) {
    script.gpus_per_task = gpus;
    return;
  }
  if (script.tasks % script.nodes != 0)
    throw_error("apply: {} has {} on {}; give every node as many: make the replicas a multiple of the nodes", job.name,
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
  const auto warning = annotations.find("signal-seconds");
  if (warning != annotations.end()) {
    script.signal_seconds = integer_at(warning->second, "signal-seconds", job);
    return;
  }
  // Whoever does not know SIGUSR1 is killed by it.
  const std::vector<std::string>& words = script.each.empty() ? script.command : script.each.front().command;
  if (std::ranges::find(words, "train") == words.end()) return;
  script.signal_seconds = kWarning;
  if (script.time.empty()) return;
  if (const auto limit = parse_slurm_time(script.time, "apply"))
    script.signal_seconds = static_cast<int>(std::min<int64_t>(kWarning, limit->count() / 2));
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
  for (int i = 0; i < job.spec.replicas; ++i) script.each.push_back(task_of(job, i, script, program));
}

}  // namespace

SlurmScript slurm_script(const Job& job, const SlurmPlace& place, const std::function<void(std::string_view)>& note) {
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
                     .logs = place.logs,
                     .first_attempt = place.first_attempt};
  const std::string& folder = job.spec.container.folder;
  script.folder = folder.empty() ? place.folder : folder.starts_with('/') ? folder : place.folder + "/" + folder;
  if (const std::string nodes = text("nodes"); !nodes.empty()) script.nodes = integer_at(nodes, "nodes", job);
  if (const std::string runtime = text("runtime"); !runtime.empty()) {
    script.runtime = parse_slurm_runtime(runtime, "apply");
    script.image = job.spec.container.image;
  } else if (!job.spec.container.image.empty()) {
    const std::string stand_in = stand_in_of(job.spec.container);
    note(fmt::format(
        "the image {} is not used: {} on the nodes; the annotation "
        "{}runtime: apptainer (or singularity, pyxis) runs it in the image",
        job.spec.container.image,
        stand_in.empty() ? "its program runs as it is" : stand_in + ", which does the same, runs in its place",
        kPrefix));
  }
  set_commands(script, job, script.runtime == SlurmRuntime::none ? place.program : "lockstep");
  set_limits(script, job);
  set_restarts(script, job);
  set_times(script, job, annotations);
  return script;
}

}  // namespace lockstep
