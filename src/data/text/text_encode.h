// Tokenizes documents with several threads. Safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/file.h"
#include "data/text/text_documents.h"
#include "lockstep/tokenizer.h"

namespace lockstep::detail {

// Calls `sink` with the ids of all documents, in order and in the caller's thread. Between two documents is the
// tokenizer's end-of-text token, or a newline if it has none. Memory is bounded: a few pieces of text for each thread.
// The ids do not depend on the number of threads (0: one for each CPU). Throws as TextPieces and the tokenizer do.
void encode_documents(const TextDocuments& documents, const Tokenizer& tokenizer, int threads,
                      const std::function<void(std::span<const int32_t>)>& sink,
                      FileSystem& files = FileSystem::real());

}  // namespace lockstep::detail
