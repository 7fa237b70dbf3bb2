// Which tensors of a Hugging Face folder hold which parameters of a Gpt. One list serves reading and writing. Pure
// functions, safe from any thread.
//
// Lockstep stores weights as [in, out]. GPT-2's folders have the same orientation; Llama's have [out, in], and queries,
// keys and values in three tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/gpt.h"
#include "train/hf_config.h"

namespace lockstep::detail {

// A tensor of a folder, and the part of a parameter that it holds. The parameter is seen as a matrix, a vector as one
// row; the tensor holds all its rows and some of its columns.
struct HfSlot {
  std::string name;
  Shape shape;              // of the tensor
  Array* leaf = nullptr;    // the parameter; null: the model has none, and the tensor is all zeros
  int64_t first = 0;        // of the columns
  bool transposed = false;  // the tensor is [columns, rows]
};

// The tensors of a model. `params` has the structure and types of create_gpt(config); the slots point into it. `prefix`
// is "transformer.", "model." or empty.
std::vector<HfSlot> hf_slots(const GptConfig& config, HfFamily family, const std::string& prefix, Gpt& params);

// The prefix with which models for text are saved.
std::string hf_prefix(HfFamily family);
// The name of the token embedding after the prefix.
std::string hf_embedding_name(HfFamily family);

// Whether a name is that of a buffer that old versions of transformers saved, which holds no parameter.
bool is_hf_buffer(const std::string& name);

// Copies between a tensor and its part of the parameter. REQUIRES: slot.leaf is not null.
void copy_from_tensor(const HfSlot& slot, const std::vector<float>& tensor, std::vector<float>& leaf);
std::vector<float> copy_to_tensor(const HfSlot& slot, std::span<const float> leaf);

}  // namespace lockstep::detail
