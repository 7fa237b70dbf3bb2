// Maps the settings of a run to the configuration of its language model, and stores the tokenizer of a run beside its
// checkpoints. Pure functions except for the files, safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "lockstep/checkpoint.h"
#include "lockstep/gpt.h"
#include "lockstep/tokenizer.h"
#include "train/config.h"

namespace lockstep {

// The model that the settings of a run with model gpt describe: the named size, with the values that are given. Without
// a setting, `vocabulary` is used, the number of tokens of the tokenizer. Throws Error, naming the setting, when the
// values do not fit each other, or the setting is below `vocabulary`.
GptConfig gpt_config_of(const TrainConfig& config, int64_t vocabulary);

// The settings that describe a model completely: gpt_config_of(from_map(gpt_settings_of(x)), v) == x for any
// v <= x.vocabulary. Has no other keys, so that a checkpoint with these settings fits any data set and optimizer.
ConfigMap gpt_settings_of(const GptConfig& config);

// `config` with the model of a checkpoint that has the settings `saved`: for a run that starts from its weights.
// Settings that are given in `config` must agree. Throws Error naming the setting and both values.
TrainConfig with_model_of(TrainConfig config, const ConfigMap& saved);

// The same for a checkpoint, or the newest one of a folder. The tokenizer, if none is given, is the one beside the
// checkpoints. Throws Error when there is no checkpoint.
TrainConfig start_from(const TrainConfig& config, const std::string& path);

// The language model of a checkpoint.
struct StoredGpt {
  GptConfig config;
  Gpt params;
};
// Uses the average of the weights if the run keeps one (ema_decay). Throws Error, naming `where`, when it is a
// checkpoint of another model, or a parameter is missing or has another type.
StoredGpt gpt_of(const Checkpoint& checkpoint, const std::string& where);

// Parameters with the structure and types of create_gpt(config), without values.
Gpt gpt_form(const GptConfig& config);
// Throws Error, starting with `what`, unless the parameters have that structure and those shapes.
void check_gpt_params(std::string_view what, const GptConfig& config, const Gpt& params);

// The tokenizer of a run: tokenizer.json in the folder of its checkpoints. `dir` is that folder, or a checkpoint in it.
// load_run_tokenizer() returns null if there is none. Throws Error when the file is not a tokenizer, IoError when it
// cannot be read or written.
// The path of that file; empty if there is none.
std::string run_tokenizer_file(const std::string& dir);
TokenizerPtr load_run_tokenizer(const std::string& dir);
void store_run_tokenizer(const std::string& dir, const Tokenizer& tokenizer, FileSystem& files = FileSystem::real());

}  // namespace lockstep
