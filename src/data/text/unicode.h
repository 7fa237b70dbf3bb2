// Characters of UTF-8 text and their Unicode classes. Pure functions, safe from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {

// Bits of a character's classes.
inline constexpr uint8_t kLetter = 1;  // \p{L}
inline constexpr uint8_t kNumber = 2;  // \p{N}
inline constexpr uint8_t kSpace = 4;   // \s: White_Space
inline constexpr uint8_t kWord = 8;    // \w: letters, marks, digits, connectors

// The classes of all code points in pages of 256; equal pages are stored once.
class UnicodeClasses {
 public:
  static const UnicodeClasses& get();

  uint8_t operator[](uint32_t code) const {
    return code < kCodes ? entries_[size_t{pages_[code >> 8]} << 8 | (code & 0xff)] : uint8_t{0};
  }
  // The classes of ASCII characters.
  const uint8_t* ascii() const { return &entries_[size_t{pages_[0]} << 8]; }

 private:
  static constexpr uint32_t kCodes = 0x110000;

  UnicodeClasses();

  std::array<uint16_t, kCodes / 256> pages_;
  std::vector<uint8_t> entries_;
};

// A character of a text. Bytes that are not UTF-8 are characters of one byte without classes and code point.
struct Utf8Character {
  static constexpr uint32_t kInvalid = 0xffffffff;

  uint32_t code = kInvalid;
  uint32_t size = 1;  // bytes
};

// Decodes the character at `at`. REQUIRES: at < end.
inline Utf8Character character_at(const char* at, const char* end) {
  const auto byte = [&](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(at[i])); };
  const auto continues = [&](int i) { return (byte(i) & 0xc0) == 0x80; };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first >= 0xc2 && first < 0xe0 && end - at >= 2 && continues(1))
    return {(first & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (first >= 0xe0 && first < 0xf0 && end - at >= 3 && continues(1) && continues(2)) {
    const uint32_t code = (first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    if (code >= 0x800 && (code < 0xd800 || code > 0xdfff)) return {code, 3};
  }
  if (first >= 0xf0 && first < 0xf5 && end - at >= 4 && continues(1) && continues(2) && continues(3)) {
    const uint32_t code = (first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
    if (code >= 0x10000 && code <= 0x10ffff) return {code, 4};
  }
  return {};
}

// The character that ends before `at`. REQUIRES: begin < at.
Utf8Character character_before(const char* begin, const char* at);

// Appends a code point as UTF-8. REQUIRES: it is valid.
void append_utf8(uint32_t code, std::string& text);

}  // namespace lockstep::detail
