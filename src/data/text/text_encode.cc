#include "data/text/text_encode.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "base/start_thread.h"
#include "lane/cpus.h"

namespace lockstep::detail {
namespace {

struct EncodedPiece {
  TextPiece piece;
  std::vector<int32_t> ids;
  std::exception_ptr error;
};

// Encodes pieces with several threads, of which the caller is one.
void encode_pieces(std::span<EncodedPiece> pieces, const Tokenizer& tokenizer, int threads) {
  std::atomic<size_t> taken = 0;
  const auto work = [&] {
    for (size_t i; (i = taken++) < pieces.size();) {
      EncodedPiece& each = pieces[i];
      each.ids.clear();
      try {
        tokenizer.append_ids(each.piece.text, each.ids);
      } catch (...) {
        each.error = std::current_exception();
      }
    }
  };
  std::vector<std::thread> workers;
  const int count = std::min(threads, static_cast<int>(pieces.size()));
  try {
    for (int i = 1; i < count; ++i) workers.push_back(start_thread(work));
  } catch (const std::system_error&) {  // no more threads: those that exist do the work
  }
  work();
  for (std::thread& worker : workers) worker.join();
  for (const EncodedPiece& each : pieces)
    if (each.error) std::rethrow_exception(each.error);
}

std::vector<int32_t> separator_of(const Tokenizer& tokenizer, size_t documents) {
  if (documents < 2) return {};
  if (const std::optional<int32_t> end = tokenizer.end_of_text()) return {*end};
  return tokenizer.encode("\n");
}

}  // namespace

void encode_documents(const TextDocuments& documents, const Tokenizer& tokenizer, int threads,
                      const std::function<void(std::span<const int32_t>)>& sink, FileSystem& files) {
  constexpr size_t kPiecesPerThread = 4;  // evens out pieces of different sizes
  if (threads <= 0) threads = compute_threads();
  const std::vector<int32_t> separator = separator_of(tokenizer, documents.size());
  std::vector<EncodedPiece> pieces(static_cast<size_t>(threads) * kPiecesPerThread);
  TextPieces text(documents, files);
  // Some tokenizers encode a word by what is before it, so they need whole documents.
  const bool needs_documents = tokenizer.safe_cut("one two") == 0;
  const auto next = [&](TextPiece& piece) {
    if (!text.next(piece)) return false;
    for (TextPiece rest; needs_documents && !piece.ends_document && text.next(rest);) {
      piece.text += rest.text;
      piece.ends_document = rest.ends_document;
    }
    return true;
  };
  for (bool more = true; more;) {
    size_t n = 0;
    while (n < pieces.size() && (more = next(pieces[n].piece))) ++n;
    encode_pieces(std::span(pieces).first(n), tokenizer, threads);
    for (size_t i = 0; i < n; ++i) {
      sink(pieces[i].ids);
      if (pieces[i].piece.ends_document && pieces[i].piece.document + 1 < documents.size()) sink(separator);
    }
  }
}

}  // namespace lockstep::detail
