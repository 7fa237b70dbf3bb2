#include <map>

#include "base/check.h"
#include "jobs/model/manifest.h"
#include "jobs/model/manifest_spec.h"

namespace lockstep {
namespace {

// The fieldRef paths that every runner can resolve, with their values.
std::map<std::string, std::string> fields_of(const Job& job, int index) {
  const std::string number = fmt::format("{}", index);
  std::map<std::string, std::string> out = {{"metadata.name", pod_name(job, index)},
                                            {"metadata.namespace", job.namespace_name}};
  const auto label = [&](const char* key, const std::string& value) {
    out.emplace(fmt::format("metadata.labels['{}']", key), value);
  };
  if (job.kind == JobKind::jax_job) {
    label("training.kubeflow.org/job-name", job.name);
    label("training.kubeflow.org/replica-type", "worker");
    label("training.kubeflow.org/replica-index", number);
  } else {
    label("batch.kubernetes.io/job-name", job.name);
    label("job-name", job.name);
    label("batch.kubernetes.io/job-completion-index", number);
    out.emplace("metadata.annotations['batch.kubernetes.io/job-completion-index']", number);
  }
  return out;
}

}  // namespace

bool detail::is_known_field(JobKind kind, const std::string& field) {
  Job job;
  job.kind = kind;
  return fields_of(job, 0).contains(field);
}

std::string expand_variables(std::string_view text, const std::vector<std::pair<std::string, std::string>>& env) {
  std::string out;
  while (!text.empty()) {
    const size_t dollar = text.find('$');
    out += text.substr(0, dollar);
    if (dollar == text.npos) break;
    text.remove_prefix(dollar);
    const size_t close = text.find(')');
    if (text.starts_with("$$")) {
      out += '$';
      text.remove_prefix(2);
    } else if (text.starts_with("$(") && close != text.npos) {
      const std::string_view name = text.substr(2, close - 2);
      const std::string* value = nullptr;
      for (const auto& [key, each] : env)
        if (key == name) value = &each;
      out += value ? std::string_view(*value) : text.substr(0, close + 1);
      text.remove_prefix(close + 1);
    } else {
      out += '$';
      text.remove_prefix(1);
    }
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> replica_env(const Job& job, int index) {
  const std::map<std::string, std::string> fields = fields_of(job, index);
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [name, value] : job.spec.container.env) {
    const auto field = job.spec.container.env_fields.find(name);
    if (field == job.spec.container.env_fields.end()) {
      out.emplace_back(name, expand_variables(value, out));
    } else if (const auto found = fields.find(field->second); found != fields.end()) {
      out.emplace_back(name, found->second);
    }
  }
  return out;
}

}  // namespace lockstep
