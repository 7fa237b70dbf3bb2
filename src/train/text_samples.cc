#include "train/text_samples.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "base/text_bytes.h"
#include "lockstep/device_put.h"
#include "lockstep/devices.h"
#include "lockstep/distributed.h"
#include "lockstep/tree.h"
#include "train/gpt_settings.h"
#include "train/state.h"
#include "train/user_program.h"

namespace lockstep {
namespace {

constexpr double kTemperature = 0.8;  // texts are easier to judge than at 1

// The configuration of the model that the task trains.
GptConfig model_of(const TrainConfig& config, const Task& task) {
  const auto embedding = std::ranges::find(task.paths, "token_embedding");
  LOCKSTEP_CHECK(embedding != task.paths.end(), "a task without token_embedding");
  return gpt_config_of(config, task.types[static_cast<size_t>(embedding - task.paths.begin())].shape[0]);
}

// The complete array in every process: a generator shards nothing, and computes the same in all of them.
Array complete(const Array& array) {
  if (process_count() > 1) return distributed::process_allgather(array);
  return array.sharding().defined() ? device_put(array, NamedSharding(array.sharding().mesh(), P())) : array;
}

}  // namespace

TextSamples::TextSamples(const TrainConfig& config, const Task& task, TokenizerPtr tokenizer)
    : config_(config), task_(task), tokenizer_(std::move(tokenizer)) {}

std::string TextSamples::generated(const TrainState& state) {
  const GptConfig model = model_of(config_, task_);
  Gpt params = tree_map(complete, tree_unflatten(gpt_form(model), detail::evaluated_params(task_, state)));
  if (generator_)
    generator_->set_params(std::move(params));
  else
    generator_ = std::make_unique<Generator>(model, std::move(params), tokenizer_);
  const GenerateOptions options{
      .tokens = config_.sample_tokens, .temperature = kTemperature, .seed = config_.seed, .stop_at_end = false};
  return generator_->generate(config_.sample_prompt, options)[0].text;
}

void TextSamples::add(const TrainState& state) {
  using Json = nlohmann::ordered_json;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  Json line{
      {"step", state.step}, {"time", std::chrono::duration<double>(now).count()}, {"prompt", config_.sample_prompt}};
  try {
    line["text"] = generated(state);
  } catch (const Error& error) {
    line["error"] = error.what();
  }
  if (process_index() == 0) append(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void TextSamples::append(const std::string& line) {
  if (broken_) return;
  try {
    FileSystem::real().append(config_.run_dir + kSamplesFile, text_bytes(line));
  } catch (const IoError& error) {
    broken_ = true;
    print_stderr("{}: {}; training continues without samples of text\n", program_name(), error.what());
  }
}

}  // namespace lockstep
