// RunReports: what a run keeps in its folder besides checkpoints and metrics: its mesh, its last evaluation, and texts
// that its model has written. `lockstep board` shows them. Used by the main thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/engine.h"
#include "lockstep/task.h"
#include "train/classification_report.h"
#include "train/config.h"
#include "train/text_samples.h"

namespace lockstep {

// Throws SettingsError when texts are to be written, but there is no tokenizer or no set to evaluate.
void check_reports(const TrainConfig& config, const Problem& problem);

class RunReports {
 public:
  // Does nothing without config.run_dir. A run that begins at step 0 removes what an earlier run in the folder has left.
  // REQUIRES: both outlive the object, and check_reports() passed.
  RunReports(const TrainConfig& config, const Problem& problem, int64_t first_step);
  RunReports(const RunReports&) = delete;
  RunReports& operator=(const RunReports&) = delete;

  // For the engine of the run: writes texts. The object must outlive the engine.
  Hooks hooks();
  // For fit(): collects the predictions of the last evaluation; empty for models without classes.
  std::function<void(const BatchPredictions&)> predictions();

  // Writes mesh.json, in the first process.
  void store_mesh_of(const Engine& engine) const;
  // Writes the last evaluation, in the first process. `metrics`: those of the run at this step.
  void store_last_evaluation(int64_t step, const Scalars& metrics) const;

 private:
  bool stores() const;

  const TrainConfig& config_;
  const Problem& problem_;
  std::unique_ptr<ClassificationReport> report_;  // of the evaluation that was seen last
  std::unique_ptr<TextSamples> samples_;
};

}  // namespace lockstep
