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

constexpr size_t kLongestName = 63;
constexpr std::array kCompanions = {"Service",        "Secret", "ConfigMap",   "Namespace",    "PersistentVolumeClaim",
                                    "ServiceAccount", "Role",   "RoleBinding", "NetworkPolicy"};

bool is_small(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// A label of DNS: that of RFC 1123, or that of RFC 1035, which begins with a letter.
bool is_label(std::string_view name, bool letter_first) {
  if (name.empty() || name.size() > kLongestName || !is_small(name.front()) || !is_small(name.back())) return false;
  if (letter_first && !(name[0] >= 'a' && name[0] <= 'z')) return false;
  return std::ranges::all_of(name, [](char c) { return is_small(c) || c == '-'; });
}

// Labels with points between them.
bool is_subdomain(std::string_view name) {
  while (true) {
    const size_t point = name.find('.');
    if (!is_label(name.substr(0, point), false)) return false;
    if (point == name.npos) return true;
    name.remove_prefix(point + 1);
  }
}

void check_name(const Field& field, const Job& job) {
  const bool jax_job = job.kind == JobKind::jax_job;
  if (jax_job && !is_label(job.name, true))
    field.fail(
        fmt::format("\"{}\" is no DNS-1035 label; use small letters, digits and -, begin with a letter, end with "
                    "a letter or digit, {} characters at most",
                    job.name, kLongestName));
  if (!jax_job && !is_subdomain(job.name))
    field.fail(
        fmt::format("\"{}\" is no name in DNS; use small letters, digits, - and ., begin and end with a letter or "
                    "digit, {} characters at most",
                    job.name, kLongestName));
  if (const std::string last = pod_name(job, job.spec.replicas - 1); last.size() > kLongestName)
    field.fail(fmt::format("\"{}\" is too long: the replica {} has {} characters and {} is the most; shorten it by {}",
                           job.name, last, last.size(), kLongestName, last.size() - kLongestName));
}

void read_metadata(const Field& object, const ManifestOptions& options, Job& job) {
  const Field metadata = object.need("metadata", "give the job a name: metadata.name");
  metadata.allow({"name", "namespace", "labels", "annotations", "generateName", "finalizers", "ownerReferences", "uid",
                  "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink",
                  "deletionTimestamp", "deletionGracePeriodSeconds"});
  const auto name = metadata.find("name"), base = metadata.find("generateName");
  if (!name && !base) metadata.fail("has no name; give the job one");
  if (!name && options.suffix.empty())
    base->fail("is there instead of name; applying it twice would make two jobs: give the job a name");
  job.name = name ? name->text() : base->text() + options.suffix;
  check_name(name ? *name : *base, job);
  job.space = options.space;
  if (const auto space = metadata.find("namespace")) {
    job.space = space->text();
    if (const std::string wrong = wrong_namespace(job.space); !wrong.empty()) space->fail(wrong);
  }
  for (const char* key : {"labels", "annotations"}) {
    const auto map = metadata.find(key);
    if (!map) continue;
    if (!map->value().is_object()) map->fail("is no map; write lines such as `team: vision`");
    for (const auto& [label, value] : map->value().items()) {
      const auto field = map->find(label);
      const std::string text = field ? field->text() : "";
      if (key == std::string_view("labels")) job.labels.emplace(label, text);
    }
  }
}

[[noreturn]] void refuse_kind(const Field& field, const std::string& kind, const std::string& version) {
  std::vector<std::string> known = {"JAXJob", "Job", "List"};
  known.insert(known.end(), kCompanions.begin(), kCompanions.end());
  const std::string meant = suggestion(kind, known);
  std::string companions;
  for (const char* each : kCompanions) companions += (companions.empty() ? "" : ", ") + std::string(each);
  field.fail(
      fmt::format("\"{}\" ({}) is none that runs here; those are JAXJob (kubeflow.org/v1) and Job (batch/v1), with "
                  "{} read over; `lockstep render` writes the manifests of others for a cluster{}{}",
                  kind, version.empty() ? "without apiVersion" : version, companions, meant.empty() ? "" : ";", meant));
}

void read_object(const Field& object, const ManifestOptions& options, Manifests& out) {
  const std::string remedy = "a manifest begins with `apiVersion: kubeflow.org/v1` and `kind: JAXJob`";
  if (!object.value().is_object()) object.fail("is no map; " + remedy);
  const Field kind_field = object.need("kind", remedy);
  const std::string kind = kind_field.text();
  const auto version_field = object.find("apiVersion");
  const std::string version = version_field ? version_field->text() : "";
  if (kind == "List") {
    for (const Field& item : object.need("items", "a List holds objects").elements()) read_object(item, options, out);
    return;
  }
  const bool job_kind = kind == "JAXJob" || kind == "Job";
  if (std::ranges::find(kCompanions, kind) != kCompanions.end() || (options.any_kind && !job_kind)) {
    const auto metadata = object.find("metadata");
    const auto name = metadata ? metadata->find("name") : std::nullopt;
    const auto space = metadata ? metadata->find("namespace") : std::nullopt;
    out.others.push_back({object.value(), kind, name ? name->text() : "", space ? space->text() : options.space});
    out.notes.push_back(fmt::format("{}: {}{} is read over: it is of use on Kubernetes only", object.place(), kind,
                                    name ? " \"" + name->text() + "\"" : ""));
    return;
  }
  if (!job_kind) refuse_kind(kind_field, kind, version);
  const char* const wanted = kind == "JAXJob" ? "kubeflow.org/v1" : "batch/v1";
  if (!version_field) object.fail(fmt::format("has no apiVersion; that of a {} is {}", kind, wanted));
  if (version != wanted) version_field->fail(fmt::format("is \"{}\"; that of a {} is {}", version, kind, wanted));
  object.allow({"apiVersion", "kind", "metadata", "spec", "status"});
  Job job;
  job.kind = kind == "JAXJob" ? JobKind::jax_job : JobKind::indexed_job;
  job.manifest = object.value();
  job.spec = job.kind == JobKind::jax_job ? detail::read_jax_job_spec(object, out.notes)
                                          : detail::read_indexed_job_spec(object, out.notes);
  read_metadata(object, options, job);
  for (const Job& other : out.jobs)
    if (other.name == job.name && other.space == job.space && (other.kind == job.kind || !options.any_kind))
      object.fail(fmt::format("is the second job called {} in {}; give each a name of its own", job.name, job.space));
  out.jobs.push_back(std::move(job));
}

// What the manifest says about it, if it does.
std::optional<bool> written_suspend(const Job& job) {
  const char* const path = job.kind == JobKind::jax_job ? "/spec/runPolicy/suspend" : "/spec/suspend";
  const Json::json_pointer pointer(path);
  if (!job.manifest.contains(pointer) || !job.manifest.at(pointer).is_boolean()) return std::nullopt;
  return job.manifest.at(pointer).get<bool>();
}

std::string changed_container_field(const Container& a, const Container& b) {
  if (a.image != b.image) return fmt::format("image from \"{}\" to \"{}\"", a.image, b.image);
  if (a.command != b.command) return "command";
  if (a.args != b.args) return "args";
  if (a.env != b.env || a.env_fields != b.env_fields) return "env";
  if (a.folder != b.folder) return fmt::format("workingDir from \"{}\" to \"{}\"", a.folder, b.folder);
  return fmt::format("port from {} to {}", a.port, b.port);
}

}  // namespace

std::string wrong_namespace(std::string_view name) {
  if (is_label(name, false)) return "";
  return fmt::format(
      "\"{}\" is no DNS-1123 label; use small letters, digits and -, begin and end with a letter or digit, {} "
      "characters at most",
      name, kLongestName);
}

Manifests parse_manifests(std::string_view text, const std::string& source, const ManifestOptions& options) {
  Manifests out;
  const std::vector<YamlDocument> documents = parse_yaml_documents(text, source);
  for (const YamlDocument& document : documents) read_object(Field(source, document), options, out);
  if (documents.empty())
    throw_error("{}: there is nothing in it; a manifest begins with `apiVersion: kubeflow.org/v1` and `kind: JAXJob`",
                source);
  return out;
}

std::string update_job(Job& job, const Job& wanted) {
  const auto refuse = [&](const std::string& what) {
    throw_error(
        "apply: {} \"{}\" exists and cannot change its {}; delete it first (lockstep delete {}{}), or give the new one "
        "another name",
        name_of(job.kind), job.name, what, job.name, job.space == "default" ? "" : " -n " + job.space);
  };
  if (job.kind != wanted.kind) refuse(fmt::format("kind from {} to {}", name_of(job.kind), name_of(wanted.kind)));
  if (job.spec.replicas != wanted.spec.replicas)
    refuse(fmt::format("replicas from {} to {}", job.spec.replicas, wanted.spec.replicas));
  if (job.spec.container != wanted.spec.container)
    refuse(changed_container_field(job.spec.container, wanted.spec.container));
  JobSpec next = wanted.spec;
  // As kubectl does: what neither the old nor the new file mentions stays as it was set since.
  if (!written_suspend(job) && !written_suspend(wanted)) next.suspend = job.spec.suspend;
  // The order of fields means nothing.
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
