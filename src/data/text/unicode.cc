#include "data/text/unicode.h"

#include <algorithm>
#include <map>

namespace lockstep::detail {
namespace {

struct ClassRange {
  uint32_t first, last;
  uint8_t classes;
};

constexpr ClassRange kClassRanges[] = {
#include "data/text/unicode_classes.inc"
};

}  // namespace

UnicodeClasses::UnicodeClasses() {
  std::vector<uint8_t> all(kCodes);
  for (const ClassRange& range : kClassRanges)
    std::fill(all.begin() + range.first, all.begin() + range.last + 1, range.classes);
  std::map<std::vector<uint8_t>, uint16_t> known;
  for (size_t page = 0; page < pages_.size(); ++page) {
    const auto begin = all.begin() + static_cast<int64_t>(page * 256);
    const auto [at, is_new] = known.try_emplace({begin, begin + 256}, static_cast<uint16_t>(known.size()));
    pages_[page] = at->second;
    if (is_new) entries_.insert(entries_.end(), begin, begin + 256);
  }
}

const UnicodeClasses& UnicodeClasses::get() {
  static const UnicodeClasses classes;
  return classes;
}

Utf8Character character_before(const char* begin, const char* at) {
  for (int size = 2; size <= 4 && at - begin >= size; ++size)
    if (const Utf8Character c = character_at(at - size, at);
        c.code != Utf8Character::kInvalid && c.size == static_cast<uint32_t>(size))
      return c;
  return character_at(at - 1, at);
}

void append_utf8(uint32_t code, std::string& text) {
  const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xc0 | code >> 6), add(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12), add(0x80 | (code >> 6 & 0x3f)), add(0x80 | (code & 0x3f));
  } else {
    add(0xf0 | code >> 18), add(0x80 | (code >> 12 & 0x3f)), add(0x80 | (code >> 6 & 0x3f)), add(0x80 | (code & 0x3f));
  }
}

}  // namespace lockstep::detail
