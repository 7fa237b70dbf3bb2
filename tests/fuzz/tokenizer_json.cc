// tokenizer.json, as in `--tokenizer FILE`, and the text that such a tokenizer encodes: the input has both, separated by
// a zero byte.
#include "lockstep/tokenizer.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::string> parts = fuzz::parts_of(fuzz::text_of(data, size), '\0', 2);
  const std::string text = parts.size() > 1 ? parts[1] : parts[0];
  TokenizerPtr tokenizer;
  if (!fuzz::accepts([&] { tokenizer = tokenizer_from_json(parts[0], "input"); })) return 0;
  const std::string written = tokenizer->to_json();
  const TokenizerPtr again = tokenizer_from_json(written, "input");
  fuzz::require(again->to_json() == written, "a written tokenizer reads back the same", written);
  std::vector<int32_t> ids;
  if (!fuzz::accepts([&] { tokenizer->append_ids(text, ids); })) {  // bytes without a token
    fuzz::require(ids.empty(), "a failed call appends nothing");
    return 0;
  }
  for (const int32_t id : ids)
    fuzz::require(id >= 0 && id < tokenizer->vocabulary(), "ids are in the vocabulary", written);
  fuzz::require(again->encode(text) == ids, "a tokenizer that was read back gives the same ids", written);
  const size_t cut = tokenizer->safe_cut(text);
  fuzz::require(cut <= text.size(), "a cut is in the text");
  std::vector<int32_t> pieces;
  tokenizer->append_ids(std::string_view(text).substr(0, cut), pieces);
  tokenizer->append_ids(std::string_view(text).substr(cut), pieces);
  fuzz::require(pieces == ids, "a safe cut does not change the ids", written);
  StreamDecoder decoder(tokenizer);
  std::string streamed;
  for (const int32_t id : ids) streamed += decoder.add(id);
  streamed += decoder.finish();
  return 0;
}
