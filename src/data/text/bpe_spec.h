// BpeSpec: a byte-level byte-pair encoding as data, as tokenizer.json of Hugging Face describes it. Functions that read
// and write it. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/pretokenize.h"

namespace lockstep::detail {

// A token that is found in the text before it is split into words.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  bool single_word = false;    // only where no character of a word is beside it
  bool lstrip = false;         // with the white space before it
  bool rstrip = false;         // with the white space after it
  bool normalized = true;      // found after normalization, and after all tokens that are not
  bool in_vocabulary = false;  // the model's vocabulary has it too

  friend bool operator==(const AddedToken&, const AddedToken&) = default;
};

// Two tokens that become one. The rank of a merge is its position in the list.
struct BpeMerge {
  int32_t left = 0, right = 0, result = 0;

  friend bool operator==(const BpeMerge&, const BpeMerge&) = default;
};

struct BpeSpec {
  std::string name;
  std::vector<std::string> tokens;  // by id, in GPT-2's alphabet for bytes; empty: no token has this id
  std::vector<BpeMerge> merges;
  std::vector<AddedToken> added;
  std::vector<WordRule> rules;  // applied one after the other; none: the text is one word
  bool add_prefix_space = false;
  bool nfc = false;            // the text is normalized to NFC
  bool ignore_merges = false;  // a word that is a token is not merged from bytes
  std::optional<int32_t> unknown = {};
  bool fuse_unknown = false;                      // several unknown bytes are one token
  std::vector<int32_t> prefix = {}, suffix = {};  // the template: ids before and after a text

  friend bool operator==(const BpeSpec&, const BpeSpec&) = default;
};

// Limits on what files may contain.
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 20;
inline constexpr int64_t kMaxTokenizerBytes = int64_t{64} << 20;

// GPT-2's alphabet gives every byte a printable character: itself, or one from U+0100 on. Returns the bytes of a text in
// the alphabet; empty if a character is not in it.
std::optional<std::string> bytes_of_symbols(std::string_view symbols);
// Appends the character of a byte.
void append_symbol(uint8_t byte, std::string& text);

// Reads a tokenizer.json. Throws Error when it is not JSON, or describes another kind of tokenizer, or is inconsistent.
BpeSpec parse_tokenizer_json(std::string_view json, const std::string& name);
// Reads vocab.json (token -> id) and merges.txt (a merge per line) with GPT-2's rules. The paths are for messages.
// "<|endoftext|>" becomes a special token if the vocabulary has it.
BpeSpec parse_vocabulary(std::string_view vocabulary, const std::string& vocabulary_path, std::string_view merges,
                         const std::string& merges_path, const std::string& name);
// The complete tokenizer.json.
std::string tokenizer_json(const BpeSpec& spec);

}  // namespace lockstep::detail
