// TextSamples: texts that a language model writes while it trains, in samples.jsonl of the run's folder.
// docs/reference/run-folder.md has the format. Used by the main thread.
#pragma once

#include <memory>
#include <string>

#include "lockstep/engine.h"
#include "lockstep/generate.h"
#include "lockstep/tokenizer.h"
#include "train/config.h"

namespace lockstep {

inline constexpr const char* kSamplesFile = "/samples.jsonl";  // in the folder of a run

class TextSamples {
 public:
  // The model is that of the settings. REQUIRES: config.sample_tokens > 0, config.run_dir is not empty.
  TextSamples(const TrainConfig& config, const Task& task, TokenizerPtr tokenizer);

  // Generates a text with the parameters that evaluations use; the first process appends it to the file. A model whose
  // values are not finite, or a file that cannot be written, causes a warning. REQUIRES: all processes call it.
  void add(const TrainState& state);

 private:
  std::string generated(const TrainState& state);
  void append(const std::string& line);

  const TrainConfig& config_;
  const Task& task_;
  TokenizerPtr tokenizer_;
  std::unique_ptr<Generator> generator_;  // compiled for the first text
  bool broken_ = false;                   // the file cannot be written
};

}  // namespace lockstep
