// Token files, as in `--dataset tokens:FILE`.
#include "data/text/token_file.h"

#include "fuzz/fuzz.h"
#include "fuzz/memory_file.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::MemoryFile memory({data, size});
  if (!fuzz::accepts([&] { detail::read_token_layout("input", memory); })) return 0;
  const detail::TokenFile file("input", memory);
  fuzz::require(file.count() > 0 && file.count() * file.width() <= static_cast<int64_t>(size),
                "the tokens are within the file");
  std::vector<int32_t> ids(static_cast<size_t>(file.count()));
  constexpr int64_t kVocabulary = 1000;
  const bool read = fuzz::accepts([&] { file.read(0, ids, detail::kMaxTokenVocabulary); });
  if (!read) return 0;
  fuzz::require(file.largest(0, file.count()) == *std::max_element(ids.begin(), ids.end()), "the largest token");
  const bool small = fuzz::accepts([&] { file.read(0, ids, kVocabulary); });
  fuzz::require(small == (file.largest(0, file.count()) < kVocabulary), "tokens outside the vocabulary are found");
  return 0;
}
