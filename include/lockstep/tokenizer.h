// Tokenizer: text to token ids and back. Byte-level byte-pair encoding (GPT-2's merges and tokenizer.json of Hugging
// Face), bytes, and the characters of a corpus. docs/how-to/text.md shows how to choose one.
//
//   const TokenizerPtr gpt2 = load_tokenizer("gpt2");
//   const std::vector<int32_t> ids = gpt2->encode("Call me Ishmael.");
//   std::cout << gpt2->decode(ids);
//
// Tokenizers are immutable and safe from any thread. A StreamDecoder belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data.h"

namespace lockstep {

struct EncodeOptions {
  // Whether special tokens such as "<|endoftext|>" in the text become their ids. If not, their characters are encoded
  // like any other text: use this for text from others.
  bool special_tokens = true;
  // Whether to add what the tokenizer's template puts around a text, usually the token for the begin of the text. Most
  // tokenizers have no template, and nothing is added.
  bool use_template = false;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // "bytes", "chars", "gpt2", or the name given when it was loaded.
  virtual std::string name() const = 0;
  // All ids are in [0, vocabulary()).
  virtual int64_t vocabulary() const = 0;
  // The id that separates documents: "<|endoftext|>", "<|end_of_text|>" or "</s>". Empty if there is none.
  virtual std::optional<int32_t> end_of_text() const = 0;
  // The id of a token given by its text, such as "<|endoftext|>". Empty if there is none.
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;

  // Appends the ids of a text. A tokenizer of bytes accepts any bytes. Throws Error, and appends nothing, when the text
  // has a character that the vocabulary of a character tokenizer does not contain.
  virtual void append_ids(std::string_view text, std::vector<int32_t>& ids,
                          const EncodeOptions& options = {}) const = 0;
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The largest position p at which the text can be cut: the ids of text[0, p) and of text[p, end) are, one after the
  // other, those of the text, whatever follows it. 0 if there is none. Texts that do not fit in memory, and those that
  // several threads encode, are cut there.
  virtual size_t safe_cut(std::string_view text) const = 0;

  // The bytes of a token, which may be a part of a UTF-8 character. Empty for an id without a token: a vocabulary may
  // have gaps. Throws Error when the id is not in [0, vocabulary()).
  virtual std::string_view token_bytes(int32_t id) const = 0;
  // The bytes of the tokens, one after the other. Throws as token_bytes() does. decode(encode(x)) == x for
  // tokenizers that neither normalize, nor add or strip spaces.
  std::string decode(std::span<const int32_t> ids) const;

  // The complete tokenizer as JSON, for tokenizer_from_json(): tokenizer.json of Hugging Face for byte-pair encoding, a
  // small JSON of Lockstep for bytes and characters.
  virtual std::string to_json() const = 0;
};
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

// Turns ids into text while they are generated. Holds back the bytes of an incomplete UTF-8 character until the ids
// complete it, so that every piece can be printed. Bytes that are not UTF-8 become U+FFFD.
class StreamDecoder {
 public:
  explicit StreamDecoder(TokenizerPtr tokenizer);

  // Returns the characters that this id completes; may be empty. Throws Error when the id is not in the vocabulary.
  std::string add(int32_t id);
  // Returns the rest: U+FFFD for an incomplete character. The decoder is then as new.
  std::string finish();

 private:
  std::string take(bool all);

  TokenizerPtr tokenizer_;
  std::string held_;
};

// One token per byte, 256 of them.
TokenizerPtr byte_tokenizer();

// One token per distinct character (Unicode code point) of the corpus, in the order of their code points. Throws Error
// when the corpus is empty or not UTF-8, with the position.
TokenizerPtr char_tokenizer(std::string_view corpus);

// Reads what to_json() has written, or a tokenizer.json of Hugging Face with byte-level byte-pair encoding. `name`
// becomes name() and names the text in messages; for bytes and characters name() stays "bytes" and "chars". Throws Error
// when the text is not JSON, has another model, or contradicts itself.
TokenizerPtr tokenizer_from_json(std::string_view json, const std::string& name);

struct TokenizerOptions {
  std::string_view corpus = {};  // the text for "chars"
  DataOptions data = {};         // cache and downloads, for "gpt2"
};

// Loads a tokenizer:
//   "bytes"      byte_tokenizer()
//   "chars"      char_tokenizer(options.corpus)
//   "gpt2"       the published merges of GPT-2, fetched if not in the cache
//   FILE         tokenizer.json, or a file that holds to_json()
//   FOLDER       with tokenizer.json, or with vocab.json and merges.txt
// Throws Error for a wrong specification or file, IoError when a file cannot be read or fetched.
TokenizerPtr load_tokenizer(const std::string& spec, const TokenizerOptions& options = {});

// Learns a byte-level byte-pair encoding with GPT-2's rules for words. The vocabulary has the 256 bytes, the learned
// tokens and, as the last id, "<|endoftext|>". It is smaller than requested if the text has no more pairs to merge. The
// same texts give the same tokenizer on every machine. Throws Error when vocabulary < 257 or all texts are empty.
TokenizerPtr train_tokenizer(std::span<const std::string_view> texts, int64_t vocabulary,
                             const std::string& name = "trained");

}  // namespace lockstep
