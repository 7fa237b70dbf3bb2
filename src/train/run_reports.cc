#include "train/run_reports.h"

#include <fmt/format.h>

#include "base/file.h"
#include "lockstep/devices.h"
#include "train/evaluation_folder.h"
#include "train/mesh_file.h"
#include "train/model_info.h"

namespace lockstep {
namespace {

constexpr const char* kTokenizer = "tokenizer.json";

std::unique_ptr<TextSamples> make_samples(const TrainConfig& config, const Problem& problem) {
  if (config.sample_tokens == 0 || config.run_dir.empty()) return nullptr;
  return std::make_unique<TextSamples>(config, problem.task,
                                       tokenizer_from_json(problem.files.at(kTokenizer), "the tokenizer of the run"));
}

std::vector<std::string> class_names_of(const Problem& problem) {
  const auto info = problem.files.find(kModelFile);
  return info == problem.files.end() ? std::vector<std::string>{}
                                     : parse_model_info(info->second, kModelFile).class_names;
}

void remove_reports(const std::string& run_folder) {
  FileSystem& files = FileSystem::real();
  for (const char* name : {"/evaluation", kSamplesFile})
    if (files.exists(run_folder + name)) files.remove_tree(run_folder + name);
}

}  // namespace

void check_reports(const TrainConfig& config, const Problem& problem) {
  if (config.sample_tokens == 0) return;
  if (!problem.files.contains(kTokenizer))
    throw SettingsError(
        "sample_tokens",
        fmt::format("train: sample_tokens: {} has no tokenizer, so there is no text to write; give --tokenizer, "
                    "or remove sample_tokens",
                    config.dataset));
  if (!problem.validation && !problem.test)
    throw SettingsError(
        "sample_tokens",
        "train: sample_tokens: texts are written at evaluations, and the run has none; give --validation, such "
        "as 0.1, or remove sample_tokens");
}

RunReports::RunReports(const TrainConfig& config, const Problem& problem, int64_t first_step)
    : config_(config), problem_(problem), samples_(make_samples(config, problem)) {
  if (stores() && first_step == 0) remove_reports(config.run_dir);
}

bool RunReports::stores() const { return !config_.run_dir.empty() && process_index() == 0; }

Hooks RunReports::hooks() {
  if (!samples_) return {};
  return {.on_eval = [this](const TrainState& state, const EvalResult&) {
    samples_->add(state);
    return true;
  }};
}

std::function<void(const BatchPredictions&)> RunReports::predictions() {
  if (config_.run_dir.empty() || !problem_.task.outputs || config_.model == "gpt") return {};
  return [this](const BatchPredictions& batch) {
    if (batch.first == 0) report_ = std::make_unique<ClassificationReport>(kStoredMistakes);
    report_->add(batch);
  };
}

void RunReports::store_mesh_of(const Engine& engine) const {
  if (stores()) store_mesh(config_.run_dir, engine);
}

void RunReports::store_last_evaluation(int64_t step, const Scalars& metrics) const {
  if (!stores() || !report_) return;
  const std::string set = problem_.test ? "test" : "validation", prefix = set + "_";
  EvalResult result;
  result.examples = report_->examples();
  for (const auto& [name, value] : metrics)
    if (name.starts_with(prefix)) result.metrics.emplace_back(name.substr(prefix.size()), value);
  store_evaluation(
      config_.run_dir, {result, set, *report_, class_names_of(problem_)},
      {step, is_user_program() ? "" : config_.dataset, problem_.test ? problem_.test : problem_.validation});
}

}  // namespace lockstep
