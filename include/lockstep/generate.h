// Text generation with a language model: one compiled step per token, with a cache of keys and values.
//
//   Generator generator(config, gpt, tokenizer);
//   std::vector<GeneratedText> texts = generator.generate("Call me", {.tokens = 100, .temperature = 0.8, .top_k = 40});
//   std::cout << texts[0].text;
//
// A Generator must be used by one thread. sample_tokens() is safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/dtype.h"
#include "lockstep/gpt.h"
#include "lockstep/operand.h"
#include "lockstep/tokenizer.h"

namespace lockstep {

// How the next token is chosen from logits. The steps are applied in this order.
struct Sampling {
  double temperature = 1;  // divides the logits; 0: always the most probable token, and the fields below have no effect
  int64_t top_k = 0;       // only the k most probable tokens; 0: all
  double top_p = 1;        // only the most probable tokens, as few as have this probability together; 1: all
};

// Throws Error, naming the field, when a value is out of range.
void check(const Sampling& sampling);

// Draws a token for each row of logits [n, vocabulary]: i32 [n]. Row i depends on the key, i and its logits, not on n.
// Among equally probable tokens the one with the lowest id counts as the most probable. A row with a value that is not
// finite gives -1. May be traced. Throws Error where check() does.
Array sample_tokens(const Operand& logits, const Operand& key, const Sampling& sampling);

struct GenerateOptions {
  int64_t tokens = 200;  // the most tokens to generate, for each sample
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  uint64_t seed = 0;                   // the same seed gives the same texts
  int64_t samples = 1;                 // texts for the same prompt, generated together
  std::vector<std::string> stop = {};  // a text ends before the first of these strings
  bool stop_at_end = true;             // a text ends at the tokenizer's end_of_text()
};

// Throws Error, naming the field, when a value is out of range.
void check(const GenerateOptions& options);

struct GeneratedText {
  enum class End : uint8_t { tokens, end_of_text, stop_string };

  std::string text;    // without the prompt; valid UTF-8
  int64_t tokens = 0;  // generated, including the one that ended the text
  End end = End::tokens;
};

struct GeneratorOptions {
  DType compute = f32;  // f32, bf16 or f16
};

class Generator {
 public:
  // Receives text as it is generated: the index of the sample, and characters that are complete UTF-8. The pieces of a
  // sample, joined, are its GeneratedText::text.
  using OnText = std::function<void(int64_t sample, std::string_view piece)>;

  // Throws Error where check(config) does, or when the parameters do not fit the configuration.
  Generator(GptConfig config, Gpt params, TokenizerPtr tokenizer, GeneratorOptions options = {});
  ~Generator();
  Generator(Generator&&) noexcept;

  // Continues a prompt. Reads its last tokens if it is longer than the context of the model. An empty prompt stands for
  // the begin of a text: the tokenizer's end_of_text(), else a newline, else token 0.
  //
  // When prompt and text fill the context, the model continues with the last half of them.
  //
  // The random numbers for the token at position i of sample s depend on the seed, i and s only. Throws Error for wrong
  // options, for a prompt with tokens outside the model's vocabulary, and when the model computes values that are not
  // finite.
  std::vector<GeneratedText> generate(const std::string& prompt, const GenerateOptions& options = {},
                                      const OnText& on_text = {});

  // Replaces the parameters; nothing is compiled again. Throws Error unless they have the structure and shapes of the
  // earlier ones.
  void set_params(Gpt params);

  // How long the last generate() took, including compilation.
  struct Times {
    int64_t tokens = 0;        // of all samples
    double first_seconds = 0;  // until the first token of all samples
    double other_seconds = 0;  // for all other tokens
    int64_t samples = 0;

    double tokens_per_second() const {
      return other_seconds > 0 ? static_cast<double>(tokens - samples) / other_seconds : 0;
    }
  };
  const Times& times() const;

  // The number of compiled versions so far: of the step for one token, and of the one that reads a prompt.
  size_t compiled_steps() const;
  size_t compiled_prefills() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
