#include "data/text/unicode_nfc.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/text/unicode.h"

namespace lockstep::detail {
namespace {

struct NfcRow {
  uint32_t code, first, second;
  bool composes;
};
struct CombiningRange {
  uint32_t first, last;
  uint8_t combining;
};

constexpr NfcRow kNfcRows[] = {
#include "data/text/unicode_nfc.inc"
};
constexpr CombiningRange kCombiningRanges[] = {
#include "data/text/unicode_combining.inc"
};

uint64_t pair_key(uint32_t first, uint32_t second) { return static_cast<uint64_t>(first) << 32 | second; }

struct NfcTables {
  std::unordered_map<uint32_t, const NfcRow*> decompositions;
  std::unordered_map<uint64_t, uint32_t> compositions;

  NfcTables() {
    for (const NfcRow& row : kNfcRows) {
      decompositions.emplace(row.code, &row);
      if (row.composes) compositions.emplace(pair_key(row.first, row.second), row.code);
    }
  }
  static const NfcTables& get() {
    static const NfcTables tables;
    return tables;
  }
};

// Hangul syllables are a first consonant, a vowel, and a last consonant or none, in this order.
constexpr uint32_t kSyllables = 0xac00, kFirsts = 0x1100, kVowels = 0x1161, kLasts = 0x11a7;
constexpr uint32_t kFirstCount = 19, kVowelCount = 21, kLastCount = 28;
constexpr uint32_t kSyllableCount = kFirstCount * kVowelCount * kLastCount;

// A character with its canonical combining class. Bytes that are not UTF-8 have codes from kByte on.
struct Mark {
  uint32_t code;
  uint8_t combining;
};
constexpr uint32_t kByte = 0x80000000;

uint8_t combining_class(uint32_t code) {
  if (code < kCombiningRanges[0].first) return 0;
  const auto* at = std::upper_bound(std::begin(kCombiningRanges), std::end(kCombiningRanges), code,
                                    [](uint32_t c, const CombiningRange& range) { return c < range.first; });
  return code <= (at - 1)->last ? (at - 1)->combining : uint8_t{0};
}

void decompose(uint32_t code, std::vector<Mark>& out) {
  if (code - kSyllables < kSyllableCount) {
    const uint32_t index = code - kSyllables, last = index % kLastCount;
    out.push_back({kFirsts + index / (kVowelCount * kLastCount), 0});
    out.push_back({kVowels + index / kLastCount % kVowelCount, 0});
    if (last != 0) out.push_back({kLasts + last, 0});
    return;
  }
  const auto& table = NfcTables::get().decompositions;
  if (const auto at = code < 0xc0 ? table.end() : table.find(code); at != table.end()) {
    decompose(at->second->first, out);
    if (at->second->second != 0) decompose(at->second->second, out);
    return;
  }
  out.push_back({code, combining_class(code)});
}

// The composition of two characters; 0 if there is none.
uint32_t compose(uint32_t first, uint32_t second) {
  if (first - kFirsts < kFirstCount && second - kVowels < kVowelCount)
    return kSyllables + ((first - kFirsts) * kVowelCount + (second - kVowels)) * kLastCount;
  if (first - kSyllables < kSyllableCount && (first - kSyllables) % kLastCount == 0 && second > kLasts &&
      second < kLasts + kLastCount)
    return first + (second - kLasts);
  const auto& table = NfcTables::get().compositions;
  const auto at = table.find(pair_key(first, second));
  return at == table.end() ? 0 : at->second;
}

// Sorts the marks between starters by class, and composes each with the starter before it unless another one blocks it.
void reorder_and_compose(std::vector<Mark>& text) {
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin + 1;
    if (text[begin].combining != 0) {
      while (end < text.size() && text[end].combining != 0) ++end;
      std::stable_sort(text.begin() + static_cast<int64_t>(begin), text.begin() + static_cast<int64_t>(end),
                       [](const Mark& a, const Mark& b) { return a.combining < b.combining; });
    }
    begin = end;
  }
  size_t size = 0, starter = 0;
  bool has_starter = false;
  for (const Mark mark : text) {
    const bool adjacent = has_starter && starter + 1 == size;
    const bool blocked = !has_starter || (!adjacent && text[size - 1].combining >= mark.combining);
    if (!blocked)
      if (const uint32_t composed = compose(text[starter].code, mark.code); composed != 0) {
        text[starter].code = composed;
        continue;
      }
    if (mark.combining == 0) {
      starter = size;
      has_starter = true;
    }
    text[size++] = mark;
  }
  text.resize(size);
}

}  // namespace

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

std::string to_nfc(std::string_view text) {
  std::vector<Mark> marks;
  marks.reserve(text.size());
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const Utf8Character c = character_at(at, end);
    if (c.code == Utf8Character::kInvalid) {
      marks.push_back({kByte | static_cast<uint8_t>(*at), 0});
    } else {
      decompose(c.code, marks);
    }
    at += c.size;
  }
  reorder_and_compose(marks);
  std::string out;
  out.reserve(text.size());
  for (const Mark mark : marks) {
    if (mark.code & kByte) {
      out += static_cast<char>(mark.code & 0xff);
    } else {
      append_utf8(mark.code, out);
    }
  }
  return out;
}

}  // namespace lockstep::detail
