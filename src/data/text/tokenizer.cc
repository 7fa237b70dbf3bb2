#include "lockstep/tokenizer.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr const char* kReplacement = "\xef\xbf\xbd";  // U+FFFD

// The number of bytes at the beginning of the text, which is not empty and does not start with a complete character,
// that can be the beginning of one; 0 if the first byte cannot begin any.
size_t incomplete_size(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  const size_t size = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (size == 0) return 0;
  size_t have = 1;
  while (have < size && have < text.size()) {
    // The second byte has a smaller range after some first bytes: overlong forms, surrogates, beyond U+10FFFF.
    const unsigned low = have > 1 ? 0x80 : first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned high = have > 1 ? 0xbf : first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (byte(have) < low || byte(have) > high) break;
    ++have;
  }
  return have;
}

size_t complete_size(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return 1;
  const size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  return incomplete_size(text) == size ? size : 0;
}

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  append_ids(text, ids, options);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += token_bytes(id);
  return text;
}

StreamDecoder::StreamDecoder(TokenizerPtr tokenizer) : tokenizer_(std::move(tokenizer)) {}

std::string StreamDecoder::add(int32_t id) {
  held_ += tokenizer_->token_bytes(id);
  return take(false);
}

std::string StreamDecoder::finish() { return take(true); }

std::string StreamDecoder::take(bool all) {
  std::string out;
  std::string_view rest = held_;
  while (!rest.empty()) {
    if (const size_t size = complete_size(rest); size > 0) {
      out += rest.substr(0, size);
      rest.remove_prefix(size);
      continue;
    }
    const size_t begun = incomplete_size(rest);
    if (!all && begun == rest.size()) break;
    out += kReplacement;
    rest.remove_prefix(std::max<size_t>(begun, 1));
  }
  held_ = std::string(rest);
  return out;
}

}  // namespace lockstep
