#include "jobs/model/manifest.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/names.h"
#include "jobs/model/manifest_field.h"
#include "jobs/model/manifest_spec.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxNameLength = 63;
// Kinds that often accompany a job in a manifest. Only Kubernetes uses them.
constexpr std::array kIgnoredKinds = {
    "Service",        "Secret", "ConfigMap",   "Namespace",    "PersistentVolumeClaim",
    "ServiceAccount", "Role",   "RoleBinding", "NetworkPolicy"};

bool is_lowercase_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// A DNS label: that of RFC 1123, or with `letter_first` that of RFC 1035.
bool is_label(std::string_view name, bool letter_first) {
  if (name.empty() || name.size() > kMaxNameLength) return false;
  if (!is_lowercase_or_digit(name.front()) || !is_lowercase_or_digit(name.back())) return false;
  if (letter_first && !(name[0] >= 'a' && name[0] <= 'z')) return false;
  return std::ranges::all_of(name, [](char c) { return is_lowercase_or_digit(c) || c == '-'; });
}

// DNS labels separated by dots.
bool is_subdomain(std::string_view name) {
  while (true) {
    const size_t point = name.find('.');
    if (!is_label(name.substr(0, point), false)) return false;
    if (point == name.npos) return true;
    name.remove_prefix(point + 1);
  }
}

void check_name(const ManifestField& field, const Job& job) {
  const bool jax_job = job.kind == JobKind::jax_job;
  if (jax_job && !is_label(job.name, true))
    field.fail(fmt::format(
        "\"{}\" is not a DNS-1035 label; use lowercase letters, digits and -, begin with a letter, end with "
        "a letter or digit, at most {} characters",
        job.name, kMaxNameLength));
  if (!jax_job && !is_subdomain(job.name))
    field.fail(
        fmt::format("\"{}\" is not a DNS subdomain name; use lowercase letters, digits, - and ., begin and end with a "
                    "letter or digit, at most {} characters",
                    job.name, kMaxNameLength));
  if (const std::string last = pod_name(job, job.spec.replicas - 1); last.size() > kMaxNameLength)
    field.fail(
        fmt::format("\"{}\" is too long: the replica name {} has {} characters, the limit is {}; shorten it by {}",
                    job.name, last, last.size(), kMaxNameLength, last.size() - kMaxNameLength));
}

void read_metadata(const ManifestField& object, const ManifestOptions& options, Job& job) {
  const ManifestField metadata = object.require("metadata", "give the job a name: metadata.name");
  metadata.allow_only({"name", "namespace", "labels", "annotations", "generateName", "finalizers", "ownerReferences",
                       "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink",
                       "deletionTimestamp", "deletionGracePeriodSeconds"});
  const auto name = metadata.find("name"), base = metadata.find("generateName");
  if (!name && !base) metadata.fail("has no name; give the job one");
  if (!name && options.suffix.empty())
    base->fail("is set instead of name; applying the manifest twice would create two jobs: give the job a name");
  job.name = name ? name->text() : base->text() + options.suffix;
  check_name(name ? *name : *base, job);
  job.namespace_name = options.namespace_name;
  if (const auto namespace_name = metadata.find("namespace")) {
    job.namespace_name = namespace_name->text();
    if (const std::string error = namespace_error(job.namespace_name); !error.empty()) namespace_name->fail(error);
  }
  for (const char* key : {"labels", "annotations"}) {
    const auto map = metadata.find(key);
    if (!map) continue;
    if (!map->value().is_object()) map->fail("is not a map; write lines such as `team: vision`");
    for (const auto& [label, value] : map->value().items()) {
      const auto field = map->find(label);
      const std::string text = field ? field->text() : "";
      if (key == std::string_view("labels")) job.labels.emplace(label, text);
    }
  }
}

[[noreturn]] void reject_kind(const ManifestField& field, const std::string& kind, const std::string& version) {
  std::vector<std::string> known = {"JAXJob", "Job", "List"};
  known.insert(known.end(), kIgnoredKinds.begin(), kIgnoredKinds.end());
  const std::string meant = suggestion(kind, known);
  field.fail(
      fmt::format("\"{}\" ({}) is not supported; supported: JAXJob (kubeflow.org/v1), Job (batch/v1); ignored: {}; "
                  "`lockstep render` writes manifests of other kinds for a cluster{}{}",
                  kind, version.empty() ? "without apiVersion" : version, fmt::join(kIgnoredKinds, ", "),
                  meant.empty() ? "" : ";", meant));
}

void read_object(const ManifestField& object, const ManifestOptions& options, Manifests& out) {
  const std::string remedy = "a manifest begins with `apiVersion: kubeflow.org/v1` and `kind: JAXJob`";
  if (!object.value().is_object()) object.fail("is not a map; " + remedy);
  const ManifestField kind_field = object.require("kind", remedy);
  const std::string kind = kind_field.text();
  const auto version_field = object.find("apiVersion");
  const std::string version = version_field ? version_field->text() : "";
  if (kind == "List") {
    for (const ManifestField& item : object.require("items", "a List needs a list of objects").elements())
      read_object(item, options, out);
    return;
  }
  const bool job_kind = kind == "JAXJob" || kind == "Job";
  if (std::ranges::find(kIgnoredKinds, kind) != kIgnoredKinds.end() || (options.any_kind && !job_kind)) {
    const auto metadata = object.find("metadata");
    const auto name = metadata ? metadata->find("name") : std::nullopt;
    const auto namespace_name = metadata ? metadata->find("namespace") : std::nullopt;
    out.others.push_back({object.value(), kind, name ? name->text() : "",
                          namespace_name ? namespace_name->text() : options.namespace_name});
    out.notes.push_back(fmt::format("{}: {}{} is ignored (Kubernetes only)", object.location(), kind,
                                    name ? " \"" + name->text() + "\"" : ""));
    return;
  }
  if (!job_kind) reject_kind(kind_field, kind, version);
  const char* const wanted = kind == "JAXJob" ? "kubeflow.org/v1" : "batch/v1";
  if (!version_field) object.fail(fmt::format("has no apiVersion; a {} needs {}", kind, wanted));
  if (version != wanted) version_field->fail(fmt::format("is \"{}\"; a {} needs {}", version, kind, wanted));
  object.allow_only({"apiVersion", "kind", "metadata", "spec", "status"});
  Job job;
  job.kind = kind == "JAXJob" ? JobKind::jax_job : JobKind::indexed_job;
  job.manifest = object.value();
  job.spec = job.kind == JobKind::jax_job ? detail::read_jax_job_spec(object, out.notes)
                                          : detail::read_indexed_job_spec(object, out.notes);
  read_metadata(object, options, job);
  for (const Job& other : out.jobs)
    if (other.name == job.name && other.namespace_name == job.namespace_name &&
        (other.kind == job.kind || !options.any_kind))
      object.fail(fmt::format("is the second job called {} in {}; rename one of them", job.name, job.namespace_name));
  out.jobs.push_back(std::move(job));
}

// The value of `suspend` in the manifest; nullopt if it is not set there.
std::optional<bool> manifest_suspend(const Job& job) {
  const char* const path = job.kind == JobKind::jax_job ? "/spec/runPolicy/suspend" : "/spec/suspend";
  const Json::json_pointer pointer(path);
  if (!job.manifest.contains(pointer) || !job.manifest.at(pointer).is_boolean()) return std::nullopt;
  return job.manifest.at(pointer).get<bool>();
}

// The first difference, for an error message. REQUIRES: a != b.
std::string changed_container_field(const Container& a, const Container& b) {
  if (a.image != b.image) return fmt::format("image (\"{}\" -> \"{}\")", a.image, b.image);
  if (a.command != b.command) return "command";
  if (a.args != b.args) return "args";
  if (a.env != b.env || a.env_fields != b.env_fields) return "env";
  if (a.folder != b.folder) return fmt::format("workingDir (\"{}\" -> \"{}\")", a.folder, b.folder);
  return fmt::format("port ({} -> {})", a.port, b.port);
}

}  // namespace

std::string namespace_error(std::string_view name) {
  if (is_label(name, false)) return "";
  return fmt::format(
      "\"{}\" is not a DNS-1123 label; use lowercase letters, digits and -, begin and end with a letter or digit, at "
      "most {} characters",
      name, kMaxNameLength);
}

Manifests parse_manifests(std::string_view text, const std::string& source, const ManifestOptions& options) {
  Manifests out;
  const std::vector<YamlDocument> documents = parse_yaml_documents(text, source);
  for (const YamlDocument& document : documents) read_object(ManifestField(source, document), options, out);
  if (documents.empty())
    throw_error("{}: no objects found; a manifest begins with `apiVersion: kubeflow.org/v1` and `kind: JAXJob`",
                source);
  return out;
}

std::string update_job(Job& job, const Job& wanted) {
  const auto reject = [&](const std::string& what) {
    throw_error(
        "apply: {} \"{}\" exists, and its {} cannot be changed; delete the job first (lockstep delete {}{}), or give "
        "the new one another name",
        name_of(job.kind), job.name, what, job.name,
        job.namespace_name == "default" ? "" : " -n " + job.namespace_name);
  };
  if (job.kind != wanted.kind) reject(fmt::format("kind ({} -> {})", name_of(job.kind), name_of(wanted.kind)));
  if (job.spec.replicas != wanted.spec.replicas)
    reject(fmt::format("replicas ({} -> {})", job.spec.replicas, wanted.spec.replicas));
  if (job.spec.container != wanted.spec.container)
    reject(changed_container_field(job.spec.container, wanted.spec.container));
  JobSpec next = wanted.spec;
  // As in kubectl, a field that neither manifest mentions keeps its current value (`lockstep suspend`).
  if (!manifest_suspend(job) && !manifest_suspend(wanted)) next.suspend = job.spec.suspend;
  // nlohmann::json ignores the order of fields.
  const bool same_text = nlohmann::json(job.manifest) == nlohmann::json(wanted.manifest);
  if (next == job.spec && same_text && job.labels == wanted.labels) return "unchanged";
  if (next != job.spec) ++job.generation;
  job.spec = std::move(next);
  job.manifest = wanted.manifest;
  job.labels = wanted.labels;
  ++job.version;
  return "configured";
}

}  // namespace lockstep
