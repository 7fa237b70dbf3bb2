// config.json of Hugging Face: from its text to a GptConfig and back. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/dtype.h"
#include "lockstep/gpt.h"
#include "lockstep/tokenizer.h"

namespace lockstep::detail {

enum class HfFamily { gpt2, llama };

struct HfConfig {
  HfFamily family = HfFamily::gpt2;
  GptConfig model;
};

// `path` names the text in messages. `context`: see HfLoadOptions. Throws Error, naming the key, when a value is missing
// or wrong, or describes what Lockstep does not compute.
HfConfig parse_hf_config(std::string_view text, const std::string& path, int64_t context);

// The family in which a model can be written. Throws Error, naming the settings, if there is none.
HfFamily hf_family(const GptConfig& config);

// config.json and generation_config.json of a model. `tokenizer` may be null.
std::string encode_hf_config(const GptConfig& config, HfFamily family, DType dtype, const Tokenizer* tokenizer);
std::string encode_generation_config(const Tokenizer* tokenizer);

// tokenizer.json and tokenizer_config.json that transformers reads. Tokenizers of bytes and characters are written as
// byte-pair encodings without merges.
std::string encode_hf_tokenizer(const Tokenizer& tokenizer);
std::string encode_tokenizer_config(const Tokenizer& tokenizer, int64_t context);

}  // namespace lockstep::detail
