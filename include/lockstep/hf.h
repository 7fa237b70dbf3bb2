// Hugging Face folders: language models of the kinds GPT-2 and Llama as config.json, model.safetensors (or shards with
// an index) and tokenizer.json. docs/how-to/hugging-face.md shows their use. Functions are safe from any thread.
//
//   HfModel model = load_hf("Llama-3.2-1B");
//   Array logits = apply(model.config, model.params, tokens, {});
//   save_hf("folder", model.config, model.params, {.tokenizer = model.tokenizer.get()});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/dtype.h"
#include "lockstep/gpt.h"
#include "lockstep/tokenizer.h"

namespace lockstep {

class FileSystem;

struct HfModel {
  GptConfig config;
  Gpt params;                      // f32
  TokenizerPtr tokenizer;          // null if the folder has none that Lockstep reads
  std::vector<std::string> notes;  // what was left out, and why
};

struct HfLoadOptions {
  // The context of the model, if shorter than in the folder; 0: that of the folder. Models with learned positions keep
  // theirs.
  int64_t context = 0;
};

// Reads a folder with model_type gpt2, llama, or mistral without a sliding window. Weights in F32, F16 and BF16 become
// f32. Throws Error, naming the file and the tensor or key, when the folder is incomplete or damaged, has tensors that
// the model does not have, or describes a variant that Lockstep does not compute. Throws IoError when a file cannot be
// read.
HfModel load_hf(const std::string& dir, const HfLoadOptions& options = {});

struct HfSaveOptions {
  DType dtype = f32;                     // of the weights: f32, bf16 or f16
  const Tokenizer* tokenizer = nullptr;  // null: no tokenizer.json is written
  FileSystem* files = nullptr;           // null: the real file system
};

// Writes a folder that load_hf() and Hugging Face's transformers read: as Llama if the model has RMS norms, rotary
// positions and swiglu, as GPT-2 if it has layer norms, learned positions and gelu. GPT-2 always has biases, so zeros are
// written for a model without them. Throws Error for any other combination, when a weight is not finite or overflows
// f16, and when `dir` exists and is not an empty folder. Throws IoError; then `dir` is unchanged.
void save_hf(const std::string& dir, const GptConfig& config, const Gpt& params, const HfSaveOptions& options = {});

}  // namespace lockstep
