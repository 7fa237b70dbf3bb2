#include "jobs/model/manifest_spec.h"

#include <algorithm>

#include "base/check.h"
#include "jobs/model/manifest.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kMostSeconds = INT32_MAX;
const std::vector<std::string> kRunPolicy = {
    "cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "suspend", "schedulingPolicy",
    "managedBy"};

void note_unused(const Field& parent, std::initializer_list<const char*> keys, std::vector<std::string>& notes) {
  for (const char* key : keys)
    if (const auto field = parent.find(key))
      notes.push_back(fmt::format("{}: {} is not used here", field->place(), field->path()));
}

// The limits both kinds have, under the same names.
void read_limits(const Field& from, JobSpec& spec) {
  if (const auto field = from.find("ttlSecondsAfterFinished"))
    spec.ttl_after_finished = field->integer(0, kMostSeconds, "seconds after the end; leave it out to keep the job");
  if (const auto field = from.find("activeDeadlineSeconds"))
    spec.active_deadline = field->integer(1, kMostSeconds, "seconds from the start on; leave it out for no deadline");
  if (const auto field = from.find("backoffLimit"))
    spec.backoff_limit = field->integer(0, INT32_MAX, "restarts until the job has failed");
  if (const auto field = from.find("suspend")) spec.suspend = field->boolean();
}

int replicas(const Field& field) {
  return static_cast<int>(field.integer(
      1, kMostReplicas,
      fmt::format("each is a process of one SPMD program, in which all speak with all, and more than {} are not tried",
                  kMostReplicas)));
}

std::vector<std::string> words(const std::optional<Field>& field) {
  std::vector<std::string> out;
  if (field)
    for (const Field& each : field->elements()) out.push_back(each.text());
  return out;
}

bool is_variable_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) { return c > ' ' && c < 0x7f && c != '='; });
}

void read_variable(const Field& entry, JobKind kind, Container& container, std::vector<std::string>& notes) {
  entry.allow({"name", "value", "valueFrom"});
  const Field name_field = entry.need("name", "give the variable a name");
  const std::string name = name_field.text();
  if (!is_variable_name(name))
    name_field.fail(fmt::format("is \"{}\"; the name of a variable is made of visible ASCII without =", name));
  const auto value = entry.find("value"), from = entry.find("valueFrom");
  if (value && from && !value->text().empty())
    entry.fail(fmt::format("has both value and valueFrom for {}; remove one", name));
  std::erase_if(container.env, [&](const auto& other) { return other.first == name; });
  container.env_fields.erase(name);
  const bool is_token = name == "LOCKSTEP_TOKEN";
  if (!from) {
    if (is_token && value && !value->text().empty())
      value->fail(
          "is a secret that everybody who may look at the job could read; leave LOCKSTEP_TOKEN out, for a job makes "
          "its "
          "own, or on Kubernetes take it from a Secret (valueFrom.secretKeyRef)");
    container.env.emplace_back(name, value ? value->text() : "");
    return;
  }
  const auto reference = from->find("fieldRef");
  const std::string field = reference ? reference->need("fieldPath", "such as metadata.name").text() : "";
  if (is_known_field(kind, field)) {
    container.env.emplace_back(name, "");
    container.env_fields.emplace(name, field);
    return;
  }
  if (is_token) return;  // elsewhere a job makes its own
  std::string what = field;
  if (what.empty() && !from->value().empty()) what = from->value().items().begin().key();
  notes.push_back(fmt::format("{}: {} is not set: its value comes from {}, which is only known on Kubernetes",
                              from->place(), name, what.empty() ? "nothing" : what));
}

// The port of the coordinator: that called jaxjob-port, or the first of an Indexed Job, whose container names it
// itself.
void read_ports(const Field& list, JobKind kind, Container& container) {
  bool found = false;
  for (const Field& entry : list.elements()) {
    entry.allow({"name", "containerPort", "protocol", "hostPort", "hostIP"});
    const int port = static_cast<int>(entry.need("containerPort", "give the number of the port").integer(1, 65535));
    const auto name = entry.find("name");
    const bool named = name && name->text() == "jaxjob-port";
    if (named || (kind == JobKind::indexed_job && !found)) container.port = port;
    found = true;
  }
}

Container read_container(const Field& from, JobKind kind, std::vector<std::string>& notes) {
  from.allow({"name",
              "image",
              "command",
              "args",
              "env",
              "workingDir",
              "ports",
              "resources",
              "imagePullPolicy",
              "envFrom",
              "volumeMounts",
              "volumeDevices",
              "securityContext",
              "lifecycle",
              "livenessProbe",
              "readinessProbe",
              "startupProbe",
              "resizePolicy",
              "restartPolicy",
              "restartPolicyRules",
              "stdin",
              "stdinOnce",
              "tty",
              "terminationMessagePath",
              "terminationMessagePolicy"});
  Container out;
  const Field image =
      from.need("image", "Kubernetes needs one; processes on this machine do without, so any name will do");
  out.image = image.text();
  if (out.image.empty()) image.fail("is empty; give the name of an image");
  out.command = words(from.find("command"));
  out.args = words(from.find("args"));
  if (const auto env = from.find("env"))
    for (const Field& entry : env->elements()) read_variable(entry, kind, out, notes);
  if (const auto folder = from.find("workingDir")) out.folder = folder->text();
  if (const auto ports = from.find("ports")) read_ports(*ports, kind, out);
  if (const auto sources = from.find("envFrom"))
    notes.push_back(fmt::format("{}: {} is not used here: its variables are only known on Kubernetes", sources->place(),
                                sources->path()));
  note_unused(from, {"volumeMounts", "volumeDevices", "lifecycle"}, notes);
  return out;
}

Container read_template(const Field& parent, JobKind kind, std::vector<std::string>& notes) {
  const std::string name = kind == JobKind::jax_job ? "jax" : "";  // of the container; that of an Indexed Job is free
  const Field pod = parent.need("template", "it describes the pod: template.spec.containers");
  pod.allow({"metadata", "spec"});
  const Field spec = pod.need("spec", "it describes the pod: template.spec.containers");
  const Field list =
      spec.need("containers", fmt::format("give one{}, with its image", name.empty() ? "" : " called " + name));
  const std::vector<Field> all = list.elements();
  const Field* chosen = nullptr;
  std::string names;
  for (const Field& each : all) {
    const std::string own = each.need("name", "every container has one").text();
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", own);
    if (!chosen && (name.empty() || own == name)) chosen = &each;
  }
  if (!chosen && all.empty()) list.fail("is empty; give a container" + (name.empty() ? "" : " called " + name));
  if (!chosen)
    list.fail(fmt::format("has no container called {}, but {}; call the one that trains {}", name, names, name));
  for (const Field& each : all)
    if (each.path() != chosen->path())
      notes.push_back(fmt::format("{}: container \"{}\" is not run here: only the one that trains is", each.place(),
                                  each.find("name")->text()));
  note_unused(spec, {"initContainers"}, notes);
  return read_container(*chosen, kind, notes);
}

}  // namespace

JobSpec read_jax_job_spec(const Field& object, std::vector<std::string>& notes) {
  JobSpec out;
  const Field spec = object.need("spec", "it describes the job: spec.jaxReplicaSpecs.Worker");
  std::vector<std::pair<std::string, std::string>> elsewhere;
  for (const std::string& key : kRunPolicy) elsewhere.emplace_back(key, "spec.runPolicy");
  for (const char* key : {"replicas", "restartPolicy", "template"})
    elsewhere.emplace_back(key, "spec.jaxReplicaSpecs.Worker");
  spec.allow({"jaxReplicaSpecs", "runPolicy"}, elsewhere);
  const Field types = spec.need("jaxReplicaSpecs", "it describes the replicas: spec.jaxReplicaSpecs.Worker");
  const auto worker = types.find("Worker");
  if (!worker || types.value().size() != 1) {
    std::string names;
    for (const auto& [name, value] : types.value().items()) names += (names.empty() ? "" : ", ") + name;
    types.fail(fmt::format("has {}; a JAXJob has one type of replica, Worker: all run the same program",
                           names.empty() ? "no type of replica"
                           : worker      ? names
                                         : names + " and no Worker"));
  }
  worker->allow({"replicas", "restartPolicy", "template"});
  if (const auto field = worker->find("replicas")) out.replicas = replicas(*field);
  if (const auto field = worker->find("restartPolicy"))
    out.restart = static_cast<RestartPolicy>(field->choice({"Never", "OnFailure", "Always", "ExitCode"}));
  out.container = read_template(*worker, JobKind::jax_job, notes);
  if (const auto field = worker->find("template")->find("spec")->find("restartPolicy"))
    notes.push_back(fmt::format("{}: {} is not used: that of spec.jaxReplicaSpecs.Worker counts, which is {}",
                                field->place(), field->path(), name_of(out.restart)));
  if (const auto policy = spec.find("runPolicy")) {
    policy->allow(kRunPolicy);
    read_limits(*policy, out);
    if (const auto field = policy->find("cleanPodPolicy"))
      out.clean = static_cast<CleanPodPolicy>(field->choice({"None", "Running", "All"}));
    note_unused(*policy, {"schedulingPolicy", "managedBy"}, notes);
  }
  return out;
}

JobSpec read_indexed_job_spec(const Field& object, std::vector<std::string>& notes) {
  JobSpec out;
  const Field spec = object.need("spec", "it describes the job: completions, parallelism, template");
  spec.allow({"completionMode", "completions", "parallelism", "template", "backoffLimit", "activeDeadlineSeconds",
              "ttlSecondsAfterFinished", "suspend", "backoffLimitPerIndex", "maxFailedIndexes", "podFailurePolicy",
              "podReplacementPolicy", "successPolicy", "managedBy", "manualSelector", "selector", "scheduling"});
  const auto mode = spec.find("completionMode");
  if (!mode) spec.fail("has no completionMode; write `completionMode: Indexed`: replicas must know their index");
  if (mode->choice({"Indexed", "NonIndexed"}) != 0)
    mode->fail("is \"NonIndexed\"; write `completionMode: Indexed`: replicas must know their index");
  const auto parallelism = spec.find("parallelism"), completions = spec.find("completions");
  if (parallelism) out.replicas = replicas(*parallelism);
  if (!completions) spec.fail("has no completions; give their number, equal to that of parallelism");
  if (const int number = replicas(*completions); number != out.replicas)
    completions->fail(
        fmt::format("is {} and parallelism is {}; all replicas run at once, so make them equal", number, out.replicas));
  out.backoff_limit = 6;
  read_limits(spec, out);
  out.container = read_template(spec, JobKind::indexed_job, notes);
  const Field pod = *spec.find("template")->find("spec");
  const Field policy = pod.need("restartPolicy", "choose Never or OnFailure");
  out.restart = static_cast<RestartPolicy>(policy.choice({"Never", "OnFailure"}));
  note_unused(spec,
              {"backoffLimitPerIndex", "maxFailedIndexes", "podFailurePolicy", "podReplacementPolicy", "successPolicy",
               "managedBy", "scheduling"},
              notes);
  return out;
}

}  // namespace lockstep::detail
