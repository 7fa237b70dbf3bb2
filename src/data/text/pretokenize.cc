#include "data/text/pretokenize.h"

#include "base/check.h"
#include "base/printable.h"
#include "data/text/unicode.h"

namespace lockstep::detail {
namespace {

struct KnownRegex {
  WordRule rule;
  std::string_view text;
};

// The first one of a rule is the one that is written.
constexpr KnownRegex kKnownRegexes[] = {
    {WordRule::gpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {WordRule::gpt2, R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {WordRule::gpt2, R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)"},
    {WordRule::gpt4,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {WordRule::gpt4,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {WordRule::qwen,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

// Reads the classes of characters one after the other. ASCII has a table of its own in the first cache lines.
class ClassReader {
 public:
  explicit ClassReader(const char* end) : end_(end), table_(UnicodeClasses::get()), ascii_(table_.ascii()) {}

  struct Read {
    uint8_t classes;
    uint32_t size;
  };
  Read operator()(const char* at) const {
    const auto byte = static_cast<unsigned char>(*at);
    if (byte < 0x80) return {ascii_[byte], 1};
    const Utf8Character c = character_at(at, end_);
    return {table_[c.code], c.size};
  }

  // Skips characters that have one of these classes; with `wanted` 0, those that are neither letter, number nor space.
  const char* skip(const char* at, uint8_t wanted) const {
    constexpr uint8_t kAny = kLetter | kNumber | kSpace;
    while (at < end_) {
      const Read read = (*this)(at);
      if (wanted == 0 ? (read.classes & kAny) != 0 : (read.classes & wanted) == 0) break;
      at += read.size;
    }
    return at;
  }

 private:
  const char* end_;
  const UnicodeClasses& table_;
  const uint8_t* ascii_;
};

bool is_newline(char c) { return c == '\r' || c == '\n'; }

// The end of a contraction such as 's, 're or 'll at an apostrophe; `at` if there is none.
template <bool kAnyCase>
const char* contraction_end(const char* at, const char* end) {
  const auto letter = [&](int i) {
    if (end - at <= i) return '\0';
    const char c = at[i];
    return kAnyCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char a = letter(1), b = letter(2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
  // U+017F, the long s, equals s if case does not matter.
  if (kAnyCase && end - at >= 3 && at[1] == '\xc5' && at[2] == '\xbf') return at + 3;
  return at;
}

// White space before a word: the last character is left to the word, unless it is the only one.
const char* space_end(const ClassReader& read, const char* begin, const char* end) {
  const char* last = begin;
  const char* at = begin;
  while (at < end) {
    const auto [classes, size] = read(at);
    if ((classes & kSpace) == 0) break;
    last = at;
    at += size;
  }
  return at == end || last == begin ? at : last;
}

const char* gpt2_word_end(const char* begin, const char* end) {
  const ClassReader read(end);
  if (*begin == '\'')
    if (const char* at = contraction_end<false>(begin, end); at != begin) return at;
  const char* at = *begin == ' ' && end - begin > 1 ? begin + 1 : begin;
  const auto [classes, size] = read(at);
  if (classes & kSpace) return space_end(read, begin, end);
  return read.skip(at + size, classes & (kLetter | kNumber));
}

// The end of white space: after the last newline in it, else as space_end().
const char* lines_end(const ClassReader& read, const char* begin, const char* end) {
  const char* stop = read.skip(begin, kSpace);
  for (const char* at = stop; at > begin; --at)
    if (is_newline(at[-1])) return at;
  return space_end(read, begin, end);
}

const char* gpt4_word_end(const char* begin, const char* end, int most_digits) {
  const ClassReader read(end);
  if (*begin == '\'')
    if (const char* at = contraction_end<true>(begin, end); at != begin) return at;
  const auto [classes, size] = read(begin);
  const char* next = begin + size;
  if (classes & kLetter) return read.skip(next, kLetter);
  if (classes & kNumber) {
    const char* at = next;
    for (int i = 1; i < most_digits && at < end; ++i) {
      const auto [more, more_size] = read(at);
      if ((more & kNumber) == 0) break;
      at += more_size;
    }
    return at;
  }
  const ClassReader::Read second = next < end ? read(next) : ClassReader::Read{kSpace, 0};
  if (!is_newline(*begin) && (second.classes & kLetter)) return read.skip(next + second.size, kLetter);
  const bool is_other = (classes & kSpace) == 0;
  const bool other_follows = *begin == ' ' && (second.classes & (kLetter | kNumber | kSpace)) == 0;
  if (is_other || other_follows) {
    const char* at = read.skip(next, 0);
    while (at < end && is_newline(*at)) ++at;
    return at;
  }
  return lines_end(read, begin, end);
}

const char* digits_end(const char* begin, const char* end) {
  const ClassReader read(end);
  const char* at = begin;
  while (at < end) {
    const auto [classes, size] = read(at);
    if (classes & kNumber) return at == begin ? at + size : at;
    at += size;
  }
  return at;
}

}  // namespace

WordRule word_rule_of(std::string_view regex, std::string_view what) {
  for (const KnownRegex& known : kKnownRegexes)
    if (known.text == regex) return known.rule;
  throw_error(
      "{}: its pre_tokenizer splits words by the regular expression {}, which is unknown; known are those of GPT-2, "
      "GPT-4, Llama 3 and Qwen 2",
      what, printable(regex));
}

std::string_view regex_of(WordRule rule) {
  for (const KnownRegex& known : kKnownRegexes)
    if (known.rule == rule) return known.text;
  LOCKSTEP_CHECK(false, "rule {} has no regular expression", static_cast<int>(rule));
}

const char* word_end(WordRule rule, const char* begin, const char* end) {
  switch (rule) {
    case WordRule::gpt2:
      return gpt2_word_end(begin, end);
    case WordRule::gpt4:
      return gpt4_word_end(begin, end, 3);
    case WordRule::qwen:
      return gpt4_word_end(begin, end, 1);
    case WordRule::digits:
      return digits_end(begin, end);
  }
  LOCKSTEP_CHECK(false, "rule {}", static_cast<int>(rule));
}

}  // namespace lockstep::detail
