#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

unsigned char byte_at(std::string_view text, size_t i) { return static_cast<unsigned char>(text[i]); }

// Whether a non-ASCII character is invisible or changes how other text is displayed: C1 controls, line separators, and
// the marks and overrides of text direction.
bool is_hidden(std::string_view character) {
  if (character.size() == 2) return byte_at(character, 0) == 0xc2 && byte_at(character, 1) < 0xa0;
  if (character.size() != 3 || byte_at(character, 0) != 0xe2) return false;
  const unsigned second = byte_at(character, 1), third = byte_at(character, 2);
  const unsigned code = 0x2000 | (second & 0x3f) << 6 | (third & 0x3f);
  return (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f);
}

bool is_shown(std::string_view character) {
  if (character.size() == 1) return byte_at(character, 0) >= 0x20 && byte_at(character, 0) != 0x7f;
  return !is_hidden(character);
}

// Calls `add` with each character, escaped if necessary, until it returns false. Characters in `kept` are not escaped.
template <class Add>
void for_each_shown(std::string_view text, std::string_view kept, const Add& add) {
  while (!text.empty()) {
    const size_t size = utf8_character_size(text);
    const std::string_view character = text.substr(0, std::max<size_t>(size, 1));
    text.remove_prefix(character.size());
    if (size > 0 && (is_shown(character) || kept.find(character) != kept.npos)) {
      if (!add(character)) return;
      continue;
    }
    std::string escaped;
    for (const char c : character)
      fmt::format_to(std::back_inserter(escaped), "\\x{:02x}", static_cast<unsigned char>(c));
    if (!add(escaped)) return;
  }
}

}  // namespace

size_t utf8_character_size(std::string_view text) {
  const auto byte = [&](size_t i) { return byte_at(text, i); };
  if (byte(0) < 0x80) return 1;
  const size_t size = byte(0) < 0xc2 ? 0 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : byte(0) < 0xf5 ? 4 : 0;
  if (size == 0 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool overlong = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xf0 && byte(1) < 0x90);
  const bool outside = (byte(0) == 0xed && byte(1) >= 0xa0) || (byte(0) == 0xf4 && byte(1) >= 0x90);
  return overlong || outside ? 0 : size;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = utf8_character_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string printable(std::string_view text, size_t most) {
  constexpr std::string_view kCut = "...";
  std::string out;
  size_t cut = 0;  // length of the longest prefix that leaves room for kCut
  for_each_shown(text, "", [&](std::string_view shown) {
    out += shown;
    if (out.size() + kCut.size() <= most) cut = out.size();
    return out.size() <= most;
  });
  if (out.size() <= most) return out;
  out.resize(cut);
  return out.append(kCut);
}

std::string printable_lines(std::string_view text) {
  std::string out;
  for_each_shown(text, "\n\t", [&](std::string_view shown) {
    out += shown;
    return true;
  });
  return out;
}

bool is_plain_file_name(std::string_view name) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." && name.find('/') == name.npos &&
         std::ranges::none_of(name, is_control) && is_utf8(name);
}

}  // namespace lockstep
