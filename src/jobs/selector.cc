#include "jobs/selector.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep {
namespace {

bool is_label_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
         c == '.' || c == '/';
}

// Tokenizes a selector.
class SelectorReader {
 public:
  explicit SelectorReader(std::string_view text) : text_(text) {}

  bool done() {
    skip_spaces();
    return at_ == text_.size();
  }
  bool take(std::string_view symbol) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(symbol)) return false;
    at_ += symbol.size();
    return true;
  }
  void expect(std::string_view symbol) {
    if (!take(symbol)) fail(fmt::format("\"{}\" is missing", symbol));
  }
  // The next word; may be empty.
  std::string word() {
    skip_spaces();
    const size_t begin = at_;
    while (at_ < text_.size() && is_label_letter(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw_error("selector \"{}\": {} {}; write KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY or !KEY, separated by commas",
                text_, what, at_ == text_.size() ? "at the end" : fmt::format("before \"{}\"", text_.substr(at_)));
  }

 private:
  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  std::string_view text_;
  size_t at_ = 0;
};

std::vector<std::string> read_list(SelectorReader& in) {
  in.expect("(");
  std::vector<std::string> out;
  do {
    out.push_back(in.word());
  } while (in.take(","));
  in.expect(")");
  return out;
}

}  // namespace

Selector Selector::parse(std::string_view text) {
  Selector out;
  SelectorReader in(text);
  while (!in.done()) {
    Requirement each;
    each.negated = in.take("!");
    each.key = in.word();
    if (each.key.empty()) in.fail("a key is missing");
    if (!each.negated) {
      if (in.take("!=")) {
        each.negated = true;
        each.values = {in.word()};
      } else if (in.take("==") || in.take("=")) {
        each.values = {in.word()};
      } else if (const std::string word = in.word(); !word.empty()) {
        if (word != "in" && word != "notin") in.fail(fmt::format("\"{}\" is neither in nor notin", word));
        each.negated = word == "notin";
        each.values = read_list(in);
      }
    }
    out.all_.push_back(std::move(each));
    if (in.done()) break;
    in.expect(",");
    if (in.done()) in.fail("a key is missing");
  }
  return out;
}

bool Selector::matches(const Labels& labels) const {
  return std::all_of(all_.begin(), all_.end(), [&](const Requirement& each) {
    const auto found = labels.find(each.key);
    const bool holds =
        found != labels.end() &&
        (each.values.empty() || std::find(each.values.begin(), each.values.end(), found->second) != each.values.end());
    return holds != each.negated;
  });
}

Labels pod_labels(const Job& job, int index) {
  Labels out;
  const bool jax = job.kind == JobKind::jax_job;
  const nlohmann::ordered_json::json_pointer given(jax ? "/spec/jaxReplicaSpecs/Worker/template/metadata/labels"
                                                       : "/spec/template/metadata/labels");
  if (job.manifest.contains(given) && job.manifest.at(given).is_object())
    for (const auto& [key, value] : job.manifest.at(given).items())
      if (value.is_string()) out[key] = value.get<std::string>();
  if (jax) {
    out["training.kubeflow.org/job-name"] = job.name;
    out["training.kubeflow.org/operator-name"] = "jaxjob-controller";
    out["training.kubeflow.org/replica-type"] = "worker";
    out["training.kubeflow.org/replica-index"] = std::to_string(index);
    if (index == 0) out["training.kubeflow.org/job-role"] = "master";
  } else {
    out["job-name"] = out["batch.kubernetes.io/job-name"] = job.name;
    out["batch.kubernetes.io/job-completion-index"] = std::to_string(index);
    if (!job.uid.empty()) out["controller-uid"] = out["batch.kubernetes.io/controller-uid"] = job.uid;
  }
  return out;
}

}  // namespace lockstep
