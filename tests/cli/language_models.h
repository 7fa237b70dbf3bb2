// A run with a small language model, without training one.
#pragma once

#include <string>

#include "base/file.h"
#include "lockstep/checkpoint.h"
#include "lockstep/generate.h"
#include "lockstep/math.h"
#include "lockstep/random.h"
#include "lockstep/tree.h"
#include "train/gpt_settings.h"

namespace lockstep {

inline GptConfig small_language_config() {
  return {.vocabulary = 256, .context = 32, .layers = 2, .heads = 2, .width = 16};
}
inline Gpt small_language_params() {
  return tree_map([](const Array& a) { return a.rank() == 2 ? a * 6 : a; },
                  create_gpt(small_language_config(), random::key(3)));
}

inline void store_text(const std::string& path, const std::string& text) {
  FileSystem::real().write(path, std::vector<uint8_t>(text.begin(), text.end()));
}

// Writes a checkpoint of step 7, and its tokenizer beside it.
inline void write_language_run(const std::string& dir, bool with_tokenizer = true) {
  Checkpoint checkpoint{.step = 7, .config = gpt_settings_of(small_language_config())};
  for (const auto& [path, array] : tree_flatten(small_language_params()))
    checkpoint.arrays.emplace_back("params/" + path, array);
  save_checkpoint(dir, checkpoint);
  if (with_tokenizer) store_run_tokenizer(dir, *byte_tokenizer());
}

}  // namespace lockstep
