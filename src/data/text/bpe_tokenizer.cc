#include "data/text/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "data/text/unicode.h"
#include "data/text/unicode_nfc.h"

namespace lockstep::detail {
namespace {

// The bytes of every token: those of its symbols, or its text if it is not in the alphabet for bytes.
std::vector<std::string> make_bytes(const BpeSpec& spec) {
  std::vector<std::string> all;
  all.reserve(spec.tokens.size());
  for (const std::string& token : spec.tokens) all.push_back(bytes_of_symbols(token).value_or(token));
  for (const AddedToken& token : spec.added) all[static_cast<size_t>(token.id)] = token.content;
  return all;
}

std::vector<AddedToken> make_found(const BpeSpec& spec) {
  std::vector<AddedToken> tokens = spec.added;
  for (AddedToken& token : tokens)
    if (spec.nfc && token.normalized) token.content = to_nfc(token.content);
  return tokens;
}

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Whether a word always ends between these two characters.
bool is_word_end(char before, char after) { return is_ascii_letter(before) && (after == ' ' || after == '\n'); }

bool spec_can_cut(const BpeSpec& spec) {
  const bool has_words = std::ranges::any_of(spec.rules, [](WordRule rule) { return rule != WordRule::digits; });
  if (!has_words || spec.add_prefix_space) return false;
  return std::ranges::none_of(spec.added, [](const AddedToken& token) {
    for (size_t i = 1; i < token.content.size(); ++i)
      if (is_word_end(token.content[i - 1], token.content[i])) return true;
    return token.rstrip;
  });
}

bool is_word_at(std::string_view text, size_t at) {
  return at < text.size() &&
         (UnicodeClasses::get()[character_at(text.data() + at, text.data() + text.size()).code] & kWord) != 0;
}
bool is_word_before(std::string_view text, size_t at) {
  return at > 0 && (UnicodeClasses::get()[character_before(text.data(), text.data() + at).code] & kWord) != 0;
}
size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Character c = character_at(text.data() + at, text.data() + text.size());
    if ((UnicodeClasses::get()[c.code] & kSpace) == 0) break;
    at += c.size;
  }
  return at;
}
size_t skip_space_back(std::string_view text, size_t at, size_t least) {
  while (at > least) {
    const Utf8Character c = character_before(text.data(), text.data() + at);
    if ((UnicodeClasses::get()[c.code] & kSpace) == 0) break;
    at -= c.size;
  }
  return std::max(at, least);
}

// Calls on_text for the pieces between the added tokens of a text, and on_token for these.
template <class OnText, class OnToken>
void split_at_added(const AddedTokenFinder& finder, std::string_view text, bool special, const OnText& on_text,
                    const OnToken& on_token) {
  size_t done = 0;
  for (size_t from = 0;;) {
    const AddedTokenFinder::Match match = finder.find(text, from);
    if (!match.token) break;
    from = match.end;
    const AddedToken& token = *match.token;
    if (token.special && !special) continue;
    if (token.single_word && (is_word_before(text, match.begin) || is_word_at(text, match.end))) continue;
    const size_t begin = token.lstrip ? skip_space_back(text, match.begin, done) : match.begin;
    if (begin > done) on_text(text.substr(done, begin - done));
    on_token(token);
    done = from = token.rstrip ? skip_space(text, match.end) : match.end;
  }
  if (done < text.size()) on_text(text.substr(done));
}

// Splits words again by another rule.
void split_words(WordRule rule, std::vector<std::string_view>& words, std::vector<std::string_view>& scratch) {
  scratch.clear();
  for (const std::string_view word : words) {
    const char* const end = word.data() + word.size();
    for (const char* at = word.data(); at < end;) {
      const char* next = word_end(rule, at, end);
      scratch.emplace_back(at, next - at);
      at = next;
    }
  }
  words.swap(scratch);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized) : tokens_(tokens) {
  token_at_.push_back(-1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].normalized != normalized || tokens[i].content.empty()) continue;
    uint64_t node = 0;
    for (const char c : tokens[i].content) {
      const uint64_t edge = node << 8 | static_cast<uint8_t>(c);
      const auto [at, is_new] = nodes_.try_emplace(edge, static_cast<uint32_t>(token_at_.size()));
      if (is_new) token_at_.push_back(-1);
      node = at->second;
    }
    token_at_[node] = static_cast<int32_t>(i);
    starts_[static_cast<uint8_t>(tokens[i].content[0])] = true;
  }
}

AddedTokenFinder::Match AddedTokenFinder::find(std::string_view text, size_t from) const {
  if (nodes_.empty()) return {};
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) continue;
    Match match;
    uint64_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto next = nodes_.find(node << 8 | static_cast<uint8_t>(text[at]));
      if (next == nodes_.end()) break;
      node = next->second;
      if (const int32_t token = token_at_[node]; token >= 0)
        match = {begin, at + 1, &tokens_[static_cast<size_t>(token)]};
    }
    if (match.token) return match;
  }
  return {};
}

// Scratch memory for one call.
class BpeTokenizer::ScratchLoan {
 public:
  explicit ScratchLoan(const BpeTokenizer& owner) : owner_(owner) {
    const std::lock_guard lock(owner.mutex_);
    if (owner.unused_.empty()) {
      scratch_ = std::make_unique<BpeScratch>();
    } else {
      scratch_ = std::move(owner.unused_.back());
      owner.unused_.pop_back();
    }
  }
  ~ScratchLoan() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.unused_.push_back(std::move(scratch_));
  }
  ScratchLoan(const ScratchLoan&) = delete;
  ScratchLoan& operator=(const ScratchLoan&) = delete;

  BpeScratch& operator*() const { return *scratch_; }

 private:
  const BpeTokenizer& owner_;
  std::unique_ptr<BpeScratch> scratch_;
};

BpeTokenizer::BpeTokenizer(BpeSpec spec)
    : spec_(std::move(spec)),
      bytes_(make_bytes(spec_)),
      merger_(spec_, bytes_),
      found_(make_found(spec_)),
      plain_added_(found_, false),
      normalized_added_(found_, true),
      can_cut_(spec_can_cut(spec_)) {
  for (size_t id = 0; id < spec_.tokens.size(); ++id)
    if (!spec_.tokens[id].empty()) ids_.emplace(spec_.tokens[id], static_cast<int32_t>(id));
}

BpeTokenizer::~BpeTokenizer() = default;

std::optional<int32_t> BpeTokenizer::end_of_text() const {
  for (const char* token : {"<|endoftext|>", "<|end_of_text|>", "</s>"})
    if (const auto id = id_of(token)) return id;
  return std::nullopt;
}

std::optional<int32_t> BpeTokenizer::id_of(std::string_view token) const {
  const auto at = ids_.find(token);
  if (at == ids_.end()) return std::nullopt;
  return at->second;
}

std::string_view BpeTokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= vocabulary())
    throw_error("tokenizer {}: token {} is not in its vocabulary of {}; use the tokenizer that wrote the tokens",
                spec_.name, id, vocabulary());
  return bytes_[static_cast<size_t>(id)];
}

size_t BpeTokenizer::safe_cut(std::string_view text) const {
  if (!can_cut_) return 0;
  for (size_t at = text.size(); at-- > 1;)
    if (is_word_end(text[at - 1], text[at])) return at;
  return 0;
}

void BpeTokenizer::append_ids(std::string_view text, std::vector<int32_t>& ids, const EncodeOptions& options) const {
  const ScratchLoan scratch(*this);
  const size_t before = ids.size();
  try {
    if (options.use_template) ids.insert(ids.end(), spec_.prefix.begin(), spec_.prefix.end());
    append_text(text, *scratch, ids, options.special_tokens);
    if (options.use_template) ids.insert(ids.end(), spec_.suffix.begin(), spec_.suffix.end());
  } catch (...) {
    ids.resize(before);
    throw;
  }
}

void BpeTokenizer::append_text(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& ids,
                               bool special) const {
  const auto on_token = [&](const AddedToken& token) { ids.push_back(token.id); };
  const auto on_normalized = [&](std::string_view piece) {
    split_at_added(
        normalized_added_, piece, special, [&](std::string_view rest) { append_piece(rest, scratch, ids); }, on_token);
  };
  split_at_added(
      plain_added_, text, special,
      [&](std::string_view piece) {
        if (spec_.nfc && !is_ascii(piece)) {
          on_normalized(to_nfc(piece));
        } else {
          on_normalized(piece);
        }
      },
      on_token);
}

void BpeTokenizer::append_piece(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& ids) const {
  if (spec_.add_prefix_space && !text.starts_with(' ')) {
    scratch.text.assign(" ").append(text);
    text = scratch.text;
  }
  if (spec_.rules.size() != 1) {
    scratch.words.assign(1, text);
    for (const WordRule rule : spec_.rules) split_words(rule, scratch.words, scratch.more_words);
    for (const std::string_view word : scratch.words) merger_.append(word, scratch, ids);
    return;
  }
  const WordRule rule = spec_.rules[0];
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* next = word_end(rule, at, end);
    merger_.append({at, static_cast<size_t>(next - at)}, scratch, ids);
    at = next;
  }
}

}  // namespace lockstep::detail
