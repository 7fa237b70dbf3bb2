#include "data/text/tokenizer_plain.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/printable.h"
#include "data/text/unicode.h"

namespace lockstep {
namespace detail {
namespace {

// The key that the JSON of these tokenizers starts with.
constexpr const char* kKindKey = "lockstep_tokenizer";

[[noreturn]] void throw_unknown_id(const Tokenizer& tokenizer, int32_t id) {
  throw_error("tokenizer {}: token {} is not in its vocabulary of {}; use the tokenizer that wrote the tokens",
              tokenizer.name(), id, tokenizer.vocabulary());
}

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<char>(i);
  }
  std::string name() const override { return "bytes"; }
  int64_t vocabulary() const override { return 256; }
  std::optional<int32_t> end_of_text() const override { return std::nullopt; }
  std::optional<int32_t> id_of(std::string_view token) const override {
    if (token.size() != 1) return std::nullopt;
    return static_cast<uint8_t>(token[0]);
  }
  void append_ids(std::string_view text, std::vector<int32_t>& ids, const EncodeOptions&) const override {
    const size_t before = ids.size();
    ids.resize(before + text.size());
    std::transform(text.begin(), text.end(), ids.begin() + static_cast<int64_t>(before),
                   [](char c) { return static_cast<uint8_t>(c); });
  }
  size_t safe_cut(std::string_view text) const override { return text.size(); }
  std::string_view token_bytes(int32_t id) const override {
    if (id < 0 || id > 255) throw_unknown_id(*this, id);
    return {&bytes_[static_cast<size_t>(id)], 1};
  }
  std::string to_json() const override { return nlohmann::json{{kKindKey, "bytes"}}.dump() + "\n"; }

 private:
  std::array<char, 256> bytes_ = {};
};

class CharTokenizer final : public Tokenizer {
 public:
  // REQUIRES: the characters are distinct and sorted.
  explicit CharTokenizer(const std::vector<uint32_t>& codes) : ids_(codes.back() + size_t{1}, -1) {
    for (const uint32_t code : codes) {
      ids_[code] = static_cast<int32_t>(starts_.size());
      starts_.push_back(static_cast<uint32_t>(characters_.size()));
      append_utf8(code, characters_);
    }
    starts_.push_back(static_cast<uint32_t>(characters_.size()));
  }
  std::string name() const override { return "chars"; }
  int64_t vocabulary() const override { return static_cast<int64_t>(starts_.size()) - 1; }
  std::optional<int32_t> end_of_text() const override { return std::nullopt; }
  std::optional<int32_t> id_of(std::string_view token) const override {
    if (token.empty()) return std::nullopt;
    const Utf8Character c = character_at(token.data(), token.data() + token.size());
    if (c.size != token.size() || c.code >= ids_.size() || ids_[c.code] < 0) return std::nullopt;
    return ids_[c.code];
  }
  void append_ids(std::string_view text, std::vector<int32_t>& ids, const EncodeOptions&) const override {
    const size_t before = ids.size();
    const char* const end = text.data() + text.size();
    for (const char* at = text.data(); at < end;) {
      const Utf8Character c = character_at(at, end);
      if (c.code >= ids_.size() || ids_[c.code] < 0) {
        ids.resize(before);
        throw_unknown_character(text, static_cast<size_t>(at - text.data()), c);
      }
      ids.push_back(ids_[c.code]);
      at += c.size;
    }
  }
  size_t safe_cut(std::string_view text) const override {
    const char* const end = text.data() + text.size();
    for (size_t back = 1; back <= std::min<size_t>(4, text.size()); ++back) {
      const bool continues = (static_cast<unsigned char>(end[-static_cast<int64_t>(back)]) & 0xc0) == 0x80;
      if (!continues) return character_at(end - back, end).size == back ? text.size() : text.size() - back;
    }
    return text.size();
  }
  std::string_view token_bytes(int32_t id) const override {
    if (id < 0 || id >= vocabulary()) throw_unknown_id(*this, id);
    const size_t i = static_cast<size_t>(id);
    return std::string_view(characters_).substr(starts_[i], starts_[i + 1] - starts_[i]);
  }
  std::string to_json() const override {
    return nlohmann::ordered_json{{kKindKey, "chars"}, {"characters", characters_}}.dump() + "\n";
  }

 private:
  [[noreturn]] void throw_unknown_character(std::string_view text, size_t at, const Utf8Character& c) const {
    if (c.code == Utf8Character::kInvalid)
      throw_error("tokenizer chars: byte {} of the text, 0x{:02x}, is not UTF-8; convert the text, or use bytes", at,
                  static_cast<uint8_t>(text[at]));
    throw_error(
        "tokenizer chars: the character U+{:04X} \"{}\" at byte {} of the text is not one of the {} characters of the "
        "training text; leave it out, or train with the tokenizer bytes or gpt2",
        c.code, printable(text.substr(at, c.size)), at, vocabulary());
  }

  std::string characters_;        // one after the other
  std::vector<uint32_t> starts_;  // where each begins, and the end
  std::vector<int32_t> ids_;      // by code point; -1: none
};

// The distinct code points of a text, sorted. Throws Error, naming `what`, when it is empty or not UTF-8.
std::vector<uint32_t> distinct_codes(std::string_view text, std::string_view what) {
  if (text.empty()) throw_error("{}: the text is empty; give a text with the characters of the vocabulary", what);
  std::vector<bool> seen(0x110000);
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const Utf8Character c = character_at(at, end);
    if (c.code == Utf8Character::kInvalid)
      throw_error("{}: byte {} of the text, 0x{:02x}, is not UTF-8; convert the text, or use the tokenizer bytes", what,
                  at - text.data(), static_cast<uint8_t>(*at));
    seen[c.code] = true;
    at += c.size;
  }
  std::vector<uint32_t> codes;
  for (uint32_t code = 0; code < seen.size(); ++code)
    if (seen[code]) codes.push_back(code);
  return codes;
}

}  // namespace

bool is_plain_tokenizer(std::string_view json) {
  constexpr size_t kSearched = 256;
  return json.substr(0, kSearched).find(std::string("\"") + kKindKey + "\"") != json.npos;
}

TokenizerPtr plain_tokenizer_from_json(std::string_view json, const std::string& name) {
  const std::string what = "tokenizer " + printable(name);
  const auto root = parse_json<nlohmann::json>(json, what);
  const auto kind = root.is_object() ? root.find(kKindKey) : root.end();
  if (!root.is_object() || kind == root.end()) throw_error("{}: it has no \"{}\"; write it again", what, kKindKey);
  if (*kind == "bytes") return byte_tokenizer();
  if (*kind != "chars")
    throw_error("{}: \"{}\" is {}; supported are bytes and chars", what, kKindKey, printable_json(*kind));
  const auto characters = root.find("characters");
  if (characters == root.end() || !characters->is_string())
    throw_error("{}: it has no string \"characters\"; write it again", what);
  const auto& text = characters->get_ref<const std::string&>();
  auto tokenizer = std::make_shared<const CharTokenizer>(distinct_codes(text, what));
  // Ids are positions in this text, so another order would be another tokenizer.
  const std::vector<int32_t> ids = tokenizer->encode(text);
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] != static_cast<int32_t>(i))
      throw_error("{}: its characters are not in the order of their code points, or one occurs twice; write it again",
                  what);
  return tokenizer;
}

}  // namespace detail

TokenizerPtr byte_tokenizer() {
  static const TokenizerPtr tokenizer = std::make_shared<const detail::ByteTokenizer>();
  return tokenizer;
}

TokenizerPtr char_tokenizer(std::string_view corpus) {
  return std::make_shared<const detail::CharTokenizer>(detail::distinct_codes(corpus, "tokenizer chars"));
}

}  // namespace lockstep
