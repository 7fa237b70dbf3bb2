// `lockstep data tokenize` and `lockstep data train-tokenizer` without their command lines. Safe from any thread;
// callbacks run in the caller's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/text/text_documents.h"
#include "lockstep/tokenizer.h"

namespace lockstep::detail {

enum class TokenFormat {
  flat,    // 16-bit ids and nothing else, as nanoGPT writes them
  header,  // with a header, as llm.c writes them; 32-bit ids if the vocabulary needs them
};

struct TokenizeOptions {
  std::string output;  // "train.bin"
  TokenFormat format = TokenFormat::flat;
  double validation = 0;  // the share of the text, from its end, that goes to validation_path(output)
  int threads = 0;        // 0: one for each CPU
  // Bytes of text so far, after each piece of it. May be empty.
  std::function<void(int64_t bytes)> progress = {};
};

struct TokenizeResult {
  int64_t tokens = 0, validation_tokens = 0;
};

// The documents of files, folders and named sets of text, in this order. Throws as find_documents() and load_documents()
// do.
TextDocuments gather_documents(const std::vector<std::string>& inputs, const DataOptions& options);

// The file for the validation set: val.bin for train.bin, else X_val.bin for X.bin.
std::string validation_path(const std::string& output);

// Writes the token ids of documents, and the validation set. A file appears complete or not at all. Throws Error when
// the vocabulary does not fit the format or a file would have no tokens; else as encode_documents() does.
TokenizeResult tokenize_documents(const TextDocuments& documents, const Tokenizer& tokenizer,
                                  const TokenizeOptions& options, FileSystem& files = FileSystem::real());

// Trains a tokenizer on documents. Throws as TextPieces and train_tokenizer() do.
TokenizerPtr train_on_documents(const TextDocuments& documents, int64_t vocabulary, const std::string& name,
                                FileSystem& files = FileSystem::real());

}  // namespace lockstep::detail
