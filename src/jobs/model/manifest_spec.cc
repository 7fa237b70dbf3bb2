#include "jobs/model/manifest_spec.h"

#include <algorithm>

#include "base/check.h"
#include "jobs/model/manifest.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kMaxSeconds = INT32_MAX;
const std::vector<std::string> kRunPolicyFields = {
    "cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "suspend", "schedulingPolicy",
    "managedBy"};

void note_unused(const ManifestField& parent, std::initializer_list<const char*> keys,
                 std::vector<std::string>& notes) {
  for (const char* key : keys)
    if (const auto field = parent.find(key))
      notes.push_back(fmt::format("{}: {} is ignored here", field->location(), field->path()));
}

// The limits that both kinds have, with the same names.
void read_limits(const ManifestField& from, JobSpec& spec) {
  if (const auto field = from.find("ttlSecondsAfterFinished"))
    spec.ttl_after_finished = field->integer(0, kMaxSeconds, "seconds after the end; omit it to keep the job");
  if (const auto field = from.find("activeDeadlineSeconds"))
    spec.active_deadline = field->integer(1, kMaxSeconds, "seconds after the start; omit it for no deadline");
  if (const auto field = from.find("backoffLimit"))
    spec.backoff_limit = field->integer(0, INT32_MAX, "restarts before the job fails");
  if (const auto field = from.find("suspend")) spec.suspend = field->boolean();
}

int replica_count(const ManifestField& field) {
  return static_cast<int>(field.integer(
      1, kMaxReplicas,
      fmt::format("each replica is a process connected to all others; more than {} are not supported", kMaxReplicas)));
}

std::vector<std::string> string_list(const std::optional<ManifestField>& field) {
  std::vector<std::string> out;
  if (field)
    for (const ManifestField& each : field->elements()) out.push_back(each.text());
  return out;
}

bool is_variable_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) { return c > ' ' && c < 0x7f && c != '='; });
}

void read_variable(const ManifestField& entry, JobKind kind, Container& container, std::vector<std::string>& notes) {
  entry.allow_only({"name", "value", "valueFrom"});
  const ManifestField name_field = entry.require("name", "give the variable a name");
  const std::string name = name_field.text();
  if (!is_variable_name(name))
    name_field.fail(fmt::format("is \"{}\"; use only visible ASCII characters other than =", name));
  const auto value = entry.find("value"), from = entry.find("valueFrom");
  if (value && from && !value->text().empty())
    entry.fail(fmt::format("has both value and valueFrom for {}; remove one", name));
  std::erase_if(container.env, [&](const auto& other) { return other.first == name; });
  container.env_fields.erase(name);
  const bool is_token = name == "LOCKSTEP_TOKEN";
  if (!from) {
    if (is_token && value && !value->text().empty())
      value->fail(
          "is a secret that anyone who can view the job can read; remove LOCKSTEP_TOKEN (every job generates its own), "
          "or on Kubernetes take it from a Secret (valueFrom.secretKeyRef)");
    container.env.emplace_back(name, value ? value->text() : "");
    return;
  }
  const auto reference = from->find("fieldRef");
  const std::string field = reference ? reference->require("fieldPath", "such as metadata.name").text() : "";
  if (is_known_field(kind, field)) {
    container.env.emplace_back(name, "");
    container.env_fields.emplace(name, field);
    return;
  }
  if (is_token) return;  // other runners generate a token for each job
  std::string source = field;
  if (source.empty() && !from->value().empty()) source = from->value().items().begin().key();
  notes.push_back(fmt::format("{}: {} is not set: its value comes from {}, which is available on Kubernetes only",
                              from->location(), name, source.empty() ? "nothing" : source));
}

// The coordinator's port: the one named jaxjob-port, or the first port of an Indexed Job.
void read_ports(const ManifestField& list, JobKind kind, Container& container) {
  bool found = false;
  for (const ManifestField& entry : list.elements()) {
    entry.allow_only({"name", "containerPort", "protocol", "hostPort", "hostIP"});
    const int port = static_cast<int>(entry.require("containerPort", "give the number of the port").integer(1, 65535));
    const auto name = entry.find("name");
    const bool named = name && name->text() == "jaxjob-port";
    if (named || (kind == JobKind::indexed_job && !found)) container.port = port;
    found = true;
  }
}

// Whether this volume of the pod is an emptyDir, for which the file system of this machine does.
bool is_empty_dir(const ManifestField& pod, const std::string& name) {
  const auto volumes = pod.find("volumes");
  if (!volumes) return false;
  for (const ManifestField& each : volumes->elements()) {
    const auto own = each.find("name");
    if (own && own->text() == name) return each.find("emptyDir").has_value();
  }
  return false;
}

// Mounted volumes exist on Kubernetes only. Removes the variable of a mounted token, because other runners generate one
// for each job.
void read_mounts(const ManifestField& mounts, const ManifestField& pod, Container& container,
                 std::vector<std::string>& notes) {
  bool ignored = false;
  for (const ManifestField& mount : mounts.elements()) {
    const auto path = mount.find("mountPath"), name = mount.find("name");
    const std::string folder = path ? path->text() + "/" : "/";
    const bool token = path && std::erase_if(container.env, [&](const auto& variable) {
                                 return variable.first == "LOCKSTEP_TOKEN_FILE" && variable.second.starts_with(folder);
                               }) > 0;
    ignored = ignored || !(token || (name && is_empty_dir(pod, name->text())));
  }
  if (ignored) notes.push_back(fmt::format("{}: {} is ignored here", mounts.location(), mounts.path()));
}

Container read_container(const ManifestField& from, const ManifestField& pod, JobKind kind,
                         std::vector<std::string>& notes) {
  from.allow_only({"name",
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
  const ManifestField image =
      from.require("image", "Kubernetes needs one; local processes ignore it, so any name will do");
  out.image = image.text();
  if (out.image.empty()) image.fail("is empty; give the name of an image");
  out.command = string_list(from.find("command"));
  out.args = string_list(from.find("args"));
  if (const auto env = from.find("env"))
    for (const ManifestField& entry : env->elements()) read_variable(entry, kind, out, notes);
  if (const auto folder = from.find("workingDir")) out.folder = folder->text();
  if (const auto ports = from.find("ports")) read_ports(*ports, kind, out);
  if (const auto sources = from.find("envFrom"))
    notes.push_back(fmt::format("{}: {} is ignored here: its variables are available on Kubernetes only",
                                sources->location(), sources->path()));
  if (const auto mounts = from.find("volumeMounts")) read_mounts(*mounts, pod, out, notes);
  note_unused(from, {"volumeDevices", "lifecycle"}, notes);
  return out;
}

Container read_template(const ManifestField& parent, JobKind kind, std::vector<std::string>& notes) {
  const std::string name = kind == JobKind::jax_job ? "jax" : "";  // required container name; "": any
  const ManifestField pod = parent.require("template", "it describes the pod: template.spec.containers");
  pod.allow_only({"metadata", "spec"});
  const ManifestField spec = pod.require("spec", "it describes the pod: template.spec.containers");
  const ManifestField list =
      spec.require("containers", fmt::format("give one{}, with its image", name.empty() ? "" : " called " + name));
  const std::vector<ManifestField> all = list.elements();
  const ManifestField* chosen = nullptr;
  std::string names;
  for (const ManifestField& each : all) {
    const std::string own = each.require("name", "every container has one").text();
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", own);
    if (!chosen && (name.empty() || own == name)) chosen = &each;
  }
  if (!chosen && all.empty()) list.fail("is empty; give a container" + (name.empty() ? "" : " called " + name));
  if (!chosen)
    list.fail(fmt::format("has no container called {}, only {}; rename the one that trains to {}", name, names, name));
  for (const ManifestField& each : all)
    if (each.path() != chosen->path())
      notes.push_back(fmt::format("{}: container \"{}\" is ignored here: only the one that trains runs",
                                  each.location(), each.find("name")->text()));
  note_unused(spec, {"initContainers"}, notes);
  return read_container(*chosen, spec, kind, notes);
}

}  // namespace

JobSpec read_jax_job_spec(const ManifestField& object, std::vector<std::string>& notes) {
  JobSpec out;
  const ManifestField spec = object.require("spec", "it describes the job: spec.jaxReplicaSpecs.Worker");
  std::vector<std::pair<std::string, std::string>> elsewhere;
  for (const std::string& key : kRunPolicyFields) elsewhere.emplace_back(key, "spec.runPolicy");
  for (const char* key : {"replicas", "restartPolicy", "template"})
    elsewhere.emplace_back(key, "spec.jaxReplicaSpecs.Worker");
  spec.allow_only({"jaxReplicaSpecs", "runPolicy"}, elsewhere);
  const ManifestField types = spec.require("jaxReplicaSpecs", "it describes the replicas: spec.jaxReplicaSpecs.Worker");
  const auto worker = types.find("Worker");
  if (!worker || types.value().size() != 1) {
    std::string names;
    for (const auto& [name, value] : types.value().items()) names += (names.empty() ? "" : ", ") + name;
    types.fail(fmt::format("has {}; a JAXJob has one replica type, Worker: all replicas run the same program",
                           names.empty() ? "no replica type"
                           : worker      ? names
                                         : names + " and no Worker"));
  }
  worker->allow_only({"replicas", "restartPolicy", "template"});
  if (const auto field = worker->find("replicas")) out.replicas = replica_count(*field);
  if (const auto field = worker->find("restartPolicy"))
    out.restart = static_cast<RestartPolicy>(field->choice({"Never", "OnFailure", "Always", "ExitCode"}));
  out.container = read_template(*worker, JobKind::jax_job, notes);
  if (const auto field = worker->find("template")->find("spec")->find("restartPolicy"))
    notes.push_back(fmt::format("{}: {} is ignored: spec.jaxReplicaSpecs.Worker.restartPolicy, {}, applies",
                                field->location(), field->path(), name_of(out.restart)));
  if (const auto policy = spec.find("runPolicy")) {
    policy->allow_only(kRunPolicyFields);
    read_limits(*policy, out);
    if (const auto field = policy->find("cleanPodPolicy"))
      out.clean = static_cast<CleanPodPolicy>(field->choice({"None", "Running", "All"}));
    note_unused(*policy, {"schedulingPolicy", "managedBy"}, notes);
  }
  return out;
}

JobSpec read_indexed_job_spec(const ManifestField& object, std::vector<std::string>& notes) {
  JobSpec out;
  const ManifestField spec = object.require("spec", "it describes the job: completions, parallelism, template");
  spec.allow_only({"completionMode", "completions", "parallelism", "template", "backoffLimit", "activeDeadlineSeconds",
                   "ttlSecondsAfterFinished", "suspend", "backoffLimitPerIndex", "maxFailedIndexes", "podFailurePolicy",
                   "podReplacementPolicy", "successPolicy", "managedBy", "manualSelector", "selector", "scheduling"});
  const auto mode = spec.find("completionMode");
  if (!mode) spec.fail("has no completionMode; write `completionMode: Indexed`: every replica needs its index");
  if (mode->choice({"Indexed", "NonIndexed"}) != 0)
    mode->fail("is \"NonIndexed\"; write `completionMode: Indexed`: every replica needs its index");
  const auto parallelism = spec.find("parallelism"), completions = spec.find("completions");
  if (parallelism) out.replicas = replica_count(*parallelism);
  if (!completions) spec.fail("has no completions; set it to the value of parallelism");
  if (const int number = replica_count(*completions); number != out.replicas)
    completions->fail(
        fmt::format("is {} and parallelism is {}; make them equal: all replicas run at once", number, out.replicas));
  out.backoff_limit = 6;
  read_limits(spec, out);
  out.container = read_template(spec, JobKind::indexed_job, notes);
  const ManifestField pod = *spec.find("template")->find("spec");
  const ManifestField policy = pod.require("restartPolicy", "choose Never or OnFailure");
  out.restart = static_cast<RestartPolicy>(policy.choice({"Never", "OnFailure"}));
  note_unused(spec,
              {"backoffLimitPerIndex", "maxFailedIndexes", "podFailurePolicy", "podReplacementPolicy", "successPolicy",
               "managedBy", "scheduling"},
              notes);
  return out;
}

}  // namespace lockstep::detail
