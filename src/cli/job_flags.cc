#include "cli/job_flags.h"
#include "base/os/environment.h"
#include "command/choice_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>

#include "base/check.h"
#include "base/names.h"
#include "base/print_stderr.h"
#include "cli/command.h"
#include "jobs/lines.h"
#include "jobs/model/manifest.h"
#include "jobs/selector.h"
#include "jobs/table.h"

namespace lockstep::cli {
namespace {

const std::vector<std::string>& runner_names() {
  static const std::vector<std::string> all = {"local", "slurm", "kubernetes"};
  return all;
}

// The names of resources as in kubectl: singular, plural and abbreviated.
std::optional<ResourceArgument> parse_resource(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  static const std::map<std::string, ResourceArgument, std::less<>> all = [] {
    const ResourceArgument jobs = {}, jax = {Resource::jobs, JobKind::jax_job},
                           batch = {Resource::jobs, JobKind::indexed_job}, pods = {Resource::pods},
                           events = {Resource::events};
    std::map<std::string, ResourceArgument, std::less<>> out;
    for (const char* each : {"job", "jobs"}) out[each] = jobs;
    for (const char* each : {"jaxjob", "jaxjobs", "jaxjob.kubeflow.org", "jaxjobs.kubeflow.org"}) out[each] = jax;
    for (const char* each : {"job.batch", "jobs.batch"}) out[each] = batch;
    for (const char* each : {"pod", "pods", "po"}) out[each] = pods;
    for (const char* each : {"event", "events", "ev"}) out[each] = events;
    return out;
  }();
  const auto found = all.find(word);
  return found == all.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

void add_job_flags(CLI::App& command, JobFlags& flags, bool may_take_all, const char* namespace_flag) {
  command
      .add_option(namespace_flag, flags.namespace_name,
                  "the namespace (default: \"default\"; on Kubernetes that of kubectl)")
      ->type_name("NAME")
      ->check(CLI::Validator([](const std::string& text) { return namespace_error(text); }, ""));
  if (may_take_all) command.add_flag("-A,--all-namespaces", flags.all_namespaces, "use all namespaces");
  command.add_option("--on", flags.on, "the runner of the jobs (default: $LOCKSTEP_ON, else local)")
      ->check(one_of(runner_names()));
  add_runtime_flags(command, flags.runtime, {SettingGroup::jobs});
}

CLI::Validator label_selector() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        try {
          Selector::parse(text);
          return "";
        } catch (const Error& error) {
          return error.what();
        }
      },
      "");
}

void add_timeout_flag(CLI::App& command, std::string& timeout, const std::string& help) {
  command.add_option("--timeout", timeout, help)
      ->type_name("TIME")
      ->check(
          [](const std::string& text) -> std::string {
            return parse_duration(text) ? "" : fmt::format("\"{}\" is not a time such as 60s, 1m30s or 2h", text);
          },
          "");
}

std::string runner_name(const JobFlags& flags) {
  if (!flags.on.empty()) return flags.on;
  const std::string on = environment_variable("LOCKSTEP_ON").value_or("local");
  if (std::find(runner_names().begin(), runner_names().end(), on) == runner_names().end())
    throw UsageError(fmt::format("LOCKSTEP_ON: unknown runner \"{}\";{} choose local, slurm or kubernetes", on,
                                 suggestion(on, runner_names())));
  return on;
}

std::unique_ptr<Runner> runner_for(const JobFlags& flags) {
  export_flags(flags.runtime);
  return make_runner(runner_name(flags));
}

std::string JobFlags::lookup_namespace() const {
  return namespace_name.empty() ? default_namespace(runner_name(*this)) : namespace_name;
}

bool is_resource(const std::string& word) { return parse_resource(word).has_value(); }

void throw_unknown_resource(const std::string& command, const std::string& word) {
  throw UsageError(fmt::format("{}: unknown resource \"{}\";{} choose jobs, jaxjobs, pods or events", command, word,
                               suggestion(word, {"jobs", "jaxjobs", "pods", "events"})));
}

std::vector<ResourceArgument> parse_resource_arguments(const std::string& command,
                                                       const std::vector<std::string>& words) {
  std::vector<ResourceArgument> out;
  std::optional<ResourceArgument> type;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (const size_t slash = word.find('/'); slash != word.npos) {
      std::optional<ResourceArgument> each = parse_resource(word.substr(0, slash));
      if (!each) throw_unknown_resource(command, word.substr(0, slash));
      each->name = word.substr(slash + 1);
      if (each->name.empty())
        throw UsageError(fmt::format("{}: \"{}\" has no name; add one after the /", command, word));
      out.push_back(*each);
    } else if (i == 0 && (type = parse_resource(word))) {
      if (words.size() == 1) return {*type};
    } else {
      ResourceArgument each = type.value_or(ResourceArgument{});
      each.name = word;
      each.bare = !type;
      out.push_back(each);
    }
  }
  return out;
}

bool has_kind(const Job& job, const ResourceArgument& asked) { return !asked.kind || *asked.kind == job.kind; }

namespace {

// Calls `body` for the jobs of all namespaces. Does nothing when the user may not list them.
void for_each_job_anywhere(Runner& runner, std::optional<JobKind> kind, const std::function<void(const Job&)>& body) {
  std::vector<Job> jobs;
  try {
    jobs = runner.list("", kind);
  } catch (const IoError&) {
    return;
  }
  for (const Job& job : jobs) body(job);
}

}  // namespace

Job find_job(Runner& runner, const JobFlags& flags, const ResourceArgument& asked) {
  const std::string namespace_name = flags.lookup_namespace();
  try {
    Job job = runner.get(namespace_name, asked.name, asked.kind);
    if (!has_kind(job, asked))
      throw_error("{} is {}; write job/{}", job.name, job.kind == JobKind::jax_job ? "a JAXJob" : "an Indexed Job",
                  job.name);
    return job;
  } catch (const Error&) {
    // Without -n the job may be in another namespace.
    if (flags.namespace_name.empty())
      for_each_job_anywhere(runner, asked.kind, [&](const Job& job) {
        if (job.name == asked.name && job.namespace_name != namespace_name)
          throw_error("job \"{}\" not found in namespace {}; it exists in namespace {}: add -n {}", asked.name,
                      namespace_name, job.namespace_name, job.namespace_name);
      });
    throw;
  }
}

std::pair<Job, Pod> find_pod(Runner& runner, const JobFlags& flags, const std::string& name) {
  const std::string namespace_name = flags.lookup_namespace();
  if (auto found = runner.find_pod(namespace_name, name)) return std::move(*found);
  if (flags.namespace_name.empty())
    for_each_job_anywhere(runner, {}, [&](const Job& job) {
      if (job.namespace_name == namespace_name) return;
      for (const Pod& pod : pods_of(runner, job))
        if (pod_name(job, pod) == name)
          throw_error("pod \"{}\" not found in namespace {}; it exists in namespace {}: add -n {}", name,
                      namespace_name, job.namespace_name, job.namespace_name);
    });
  std::vector<std::string> names;
  for (const Job& job : runner.list(namespace_name))
    for (const Pod& pod : pods_of(runner, job)) names.push_back(pod_name(job, pod));
  const std::string similar = suggestion(name, names);
  throw_error("pod \"{}\" not found in namespace {};{}{}", name, namespace_name, similar,
              !similar.empty() ? "" : " `lockstep get pods -A` lists all pods");
}

std::pair<Job, std::optional<Pod>> find_job_or_pod(Runner& runner, const JobFlags& flags,
                                                   const ResourceArgument& asked) {
  if (asked.resource == Resource::pods) return find_pod(runner, flags, asked.name);
  if (asked.bare) {
    const std::vector<Job> jobs = runner.list(flags.lookup_namespace());
    const auto is_it = [&](const Job& job) { return job.name == asked.name; };
    if (std::none_of(jobs.begin(), jobs.end(), is_it))
      if (auto found = runner.find_pod(flags.lookup_namespace(), asked.name)) return std::move(*found);
  }
  return {find_job(runner, flags, asked), std::nullopt};
}

std::vector<Job> find_jobs(Runner& runner, const JobFlags& flags, const std::string& command,
                           const std::vector<std::string>& words) {
  std::vector<Job> out;
  for (const ResourceArgument& asked : parse_resource_arguments(command, words)) {
    if (asked.resource != Resource::jobs)
      throw UsageError(fmt::format("{}: {} cannot be given here; give the name of a job", command,
                                   asked.resource == Resource::pods ? "pods" : "events"));
    if (asked.name.empty()) continue;
    const Job job = find_job(runner, flags, asked);
    if (std::none_of(out.begin(), out.end(),
                     [&](const Job& each) { return each.name == job.name && each.kind == job.kind; }))
      out.push_back(job);
  }
  if (out.empty())
    throw UsageError(fmt::format("{}: no job given; give its name; `lockstep get jobs -A` lists all jobs", command));
  return out;
}

void print_none_found(const JobFlags& flags) {
  if (flags.all_namespaces)
    print_stderr("No resources found\n");
  else
    print_stderr("No resources found in {} namespace.\n", flags.lookup_namespace());
}

std::vector<Pod> pods_of(Runner& runner, const Job& job) {
  std::vector<Pod> out = runner.pods(job);
  const bool waits = runner.lists_pending_replicas() && !is_finished(job) && !job.spec.suspend;
  for (int i = 0; i < job.spec.replicas && waits; ++i) {
    if (std::any_of(out.begin(), out.end(), [&](const Pod& pod) { return pod.index == i; })) continue;
    Pod pod;
    pod.index = i;
    pod.attempt = job.status.restarts;
    out.push_back(pod);
  }
  std::stable_sort(out.begin(), out.end(), [](const Pod& a, const Pod& b) { return a.index < b.index; });
  return out;
}

std::string last_output_line(Runner& runner, const Job& job, const Pod& pod, bool before_restart) {
  std::string text;
  try {
    LogOptions options;
    options.tail = 1;
    options.previous = before_restart;
    runner.pod_log(job, pod, options, [&](std::string_view bytes) {
      text += bytes;
      return text.size() < kMaxLineBytes;
    });
  } catch (const std::exception&) {
    return "";
  }
  while (text.ends_with('\n')) text.pop_back();
  if (const size_t cut = text.rfind('\n'); cut != text.npos) text.erase(0, cut + 1);
  if (const size_t cut = text.rfind('\r'); cut != text.npos) text.erase(0, cut + 1);
  return without_escapes(text);
}

JobTime now() { return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()); }

}  // namespace lockstep::cli
