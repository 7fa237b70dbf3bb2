// Text and tokens as data sets of language models: sources of windows of tokens. docs/how-to/text.md lists what can be
// read.
//
//   const TextData data = open_text_data({.dataset = "moby-dick", .tokenizer = "gpt2", .context = 256});
//   // data.train, data.validation: "inputs" and "targets", i32 [256]
//
// Functions are safe from any thread; callbacks run in the caller's thread. Sources are immutable and safe from any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data.h"
#include "lockstep/source.h"
#include "lockstep/tokenizer.h"

namespace lockstep {

// How a sequence of n tokens becomes examples. Example and row: a window of `context` tokens that starts at position
// `row`. Its inputs are these tokens; its targets are the tokens one position later.
struct TokenWindows {
  int64_t context = 256;
  //
  // Training: windows start at offset + i * context, where the offset is a hash of the seed and the epoch. So windows
  // differ between epochs. There are n / context - 1 of them, at least one, which needs n >= context + 1. The offset is
  // in [0, n - count * context). An epoch uses every token once, except fewer than two windows of tokens at the ends.
  // Which ones these are changes from epoch to epoch.
  //
  // Otherwise: windows start at i * context, and every token after the first is a target exactly once. There are
  // (n - 1) / context windows, rounded up. In the last one, missing inputs are 0 and missing targets -1.
  bool shuffle_offset = true;
  uint64_t seed = 0;
  // Ids at or above it are an Error. 0: not checked.
  int64_t vocabulary = 0;
};

// A source with the fields "inputs" and "targets", i32 [context]. It is resident: the tokens are one array, with one
// byte for each token if all are below 256, else four. Throws Error when the context is less than 1, there are too few
// tokens, or one is outside the vocabulary, with its position.
SourcePtr token_source(std::vector<int32_t> tokens, const TokenWindows& windows, std::string name = "tokens");

// A range of a token file; end -1: the end of the file.
struct TokenRange {
  int64_t begin = 0;
  int64_t end = -1;
};
// The same source, streamed from a file in one of the formats of open_text_data(): only the windows of a batch are in
// memory. Tokens outside the vocabulary are found when they are read. An empty name means the path. Throws as
// token_source() does, and Error when the file is not a token file. Throws IoError when it cannot be read, also if it
// becomes shorter while in use.
SourcePtr token_file_source(const std::string& path, const TokenWindows& windows, TokenRange range = {},
                            std::string name = {});

struct TextDataOptions {
  // "moby-dick", "sotu"      named sets, fetched if not on this machine
  // "text:PATH"              a text file in UTF-8, or a folder: its *.txt and *.md, recursively, in sorted order
  // "tokens:FILE"            16-bit ids as nanoGPT writes them, or a file of llm.c or `lockstep data tokenize`
  // "text:TRAIN,VALIDATION", "tokens:TRAIN,VALIDATION", "sotu,VALIDATION"   with a validation set of its own, a path
  std::string dataset;
  // As for load_tokenizer(); "chars" means the characters of the whole text. Empty: "bytes" for text; for tokens the
  // one that `lockstep data tokenize` has written beside the file (train.tokenizer.json for train.bin), or none.
  std::string tokenizer = {};
  // The number of different tokens, at least that of the tokenizer. 0: that of the tokenizer; without one the largest
  // token plus 1, for which the files are read once.
  int64_t vocabulary = 0;
  int64_t context = 256;
  // The share of the tokens, from the end, that is the validation set if the data set has none of its own. 0: none.
  double validation = 0.1;
  uint64_t seed = 0;
  // "on": from disk. "off": in memory. "auto": from disk if there are more than 2^27 bytes of text or 2^27 tokens.
  // Text that is streamed is tokenized once, into a file of the cache. Its name is a digest of text and tokenizer.
  std::string stream = "auto";
  // Threads that tokenize; 0: one for each CPU.
  int threads = 0;
  // Folder of a named set, cache, downloads and progress.
  DataOptions data = {};
};

struct TextData {
  SourcePtr train = nullptr;
  SourcePtr validation = nullptr;    // without shuffle_offset; null: none
  TokenizerPtr tokenizer = nullptr;  // null for tokens without a tokenizer
  int64_t vocabulary = 0;
  int64_t train_tokens = 0;
  int64_t validation_tokens = 0;
  // Mean bytes of text of a target of the validation set. Loss / ln(2) / bytes_per_token is the number of bits per
  // byte. Tokens that separate documents have no bytes. 0: unknown.
  double bytes_per_token = 0;
  bool streamed = false;
};

// Opens a data set of text. Documents of a folder are separated by the tokenizer's end-of-text token, or by a newline
// if it has none. The result does not depend on the number of threads, nor on whether it is streamed. Throws Error for
// a wrong option, a file that is empty, binary or not UTF-8, or too little text. Throws IoError when a file cannot be
// read or fetched.
TextData open_text_data(const TextDataOptions& options);

// Whether the name of a data set means text or tokens, so that open_text_data() reads it. Does not read anything.
bool is_text_dataset(std::string_view dataset);
// The paths in a name such as "text:TRAIN,VALIDATION"; none in that of a named set. Throws Error when the name does not
// mean text, has an empty path or more than two.
std::vector<std::string> text_dataset_paths(std::string_view dataset);

}  // namespace lockstep
