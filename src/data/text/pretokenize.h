// Splits text into words, which byte-pair encoding then processes one by one. Tokenizers define words by a regular
// expression; these are the known ones, as hand-written scanners. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::detail {

// How a text is split into words.
enum class WordRule : uint8_t {
  gpt2,    // GPT-2: letters, numbers or other characters, each with a space before them
  gpt4,    // GPT-4 and Llama 3: numbers of up to three digits, newlines apart
  qwen,    // Qwen 2 and 3: as gpt4, with each digit apart
  digits,  // each character of \p{N} apart, and what is between them
};

// The rule of a regular expression, in any of its published spellings. Throws Error, naming it, when it is unknown;
// `what` names the tokenizer.
WordRule word_rule_of(std::string_view regex, std::string_view what);

// The regular expression of a rule. REQUIRES: the rule has one (not digits).
std::string_view regex_of(WordRule rule);

// The end of the first word. REQUIRES: begin < end. The result is after begin.
const char* word_end(WordRule rule, const char* begin, const char* end);

}  // namespace lockstep::detail
