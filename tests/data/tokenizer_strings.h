// Random strings for tests of tokenizers: valid UTF-8 of every kind that regular expressions and merges distinguish.
#pragma once

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/text/unicode.h"

namespace lockstep {

class TokenizerStrings {
 public:
  explicit TokenizerStrings(uint64_t seed) : random_(seed) {
    // English text and code with real white space.
    for (const auto& entry : std::filesystem::directory_iterator(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/how-to")) {
      if (entry.path().extension() != ".md") continue;
      const std::vector<uint8_t> bytes = FileSystem::real().read_file(entry.path());
      english_.append(bytes.begin(), bytes.end());
    }
  }

  std::vector<std::string> make(size_t count) {
    std::vector<std::string> all;
    while (all.size() < count) all.push_back(next(all.size()));
    return all;
  }

 private:
  using Make = std::string (TokenizerStrings::*)();

  std::string next(size_t i) {
    constexpr Make kinds[] = {&TokenizerStrings::any_planes, &TokenizerStrings::combining, &TokenizerStrings::emoji,
                              &TokenizerStrings::scripts,    &TokenizerStrings::spaces,    &TokenizerStrings::numbers,
                              &TokenizerStrings::quotes,     &TokenizerStrings::english,   &TokenizerStrings::english,
                              &TokenizerStrings::mixed,      &TokenizerStrings::repeated};
    return (this->*kinds[i % std::size(kinds)])();
  }

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  uint32_t in(uint32_t first, uint32_t last) { return first + static_cast<uint32_t>(below(last - first + 1)); }
  template <class List>
  const auto& one_of(const List& list) {
    return list[below(std::size(list))];
  }
  void add(std::string& text, uint32_t code) {
    if (code < 0xd800 || code > 0xdfff) detail::append_utf8(code, text);
  }

  std::string any_planes() {
    std::string text;
    for (size_t n = below(40); n > 0; --n) {
      const uint32_t last[] = {0x7f, 0xff, 0x7ff, 0xffff, 0x1ffff, 0x3ffff, 0x10ffff};
      add(text, in(0, one_of(last)));
    }
    return text;
  }
  std::string combining() {
    std::string text;
    for (size_t n = below(30); n > 0; --n) {
      add(text, below(3) == 0 ? in(0xc0, 0x17f) : in('a', 'z'));
      for (size_t marks = below(4); marks > 0; --marks) add(text, below(4) == 0 ? in(0x591, 0x5bd) : in(0x300, 0x36f));
      if (below(4) == 0) text += ' ';
    }
    return text;
  }
  std::string emoji() {
    std::string text;
    for (size_t n = below(15); n > 0; --n) {
      add(text, in(0x1f300, 0x1faff));
      if (below(3) == 0) add(text, in(0x1f3fb, 0x1f3ff));
      if (below(3) == 0) add(text, 0x200d);
      if (below(4) == 0) add(text, 0xfe0f);
      if (below(4) == 0) add(text, in(0x1f1e6, 0x1f1ff));
      if (below(3) == 0) text += ' ';
    }
    return text;
  }
  std::string scripts() {
    const std::pair<uint32_t, uint32_t> ranges[] = {
        {0x4e00, 0x9fff}, {0x3041, 0x30ff}, {0xac00, 0xd7a3}, {0x1100, 0x11ff}, {0x620, 0x64a},    {0x5d0, 0x5ea},
        {0x900, 0x97f},   {0x410, 0x44f},   {0x391, 0x3c9},   {0xe01, 0xe5b},   {0x20000, 0x2a6df}};
    std::string text;
    for (size_t words = below(8); words > 0; --words) {
      const auto& [first, last] = one_of(ranges);
      for (size_t n = below(12); n > 0; --n) add(text, in(first, last));
      const char* separators[] = {" ", "", "\xe3\x80\x80", "\xe3\x80\x82", "\n", ", "};
      text += one_of(separators);
    }
    return text;
  }
  std::string spaces() {
    const uint32_t all[] = {'\t',   '\n',   0x0b,   0x0c,   '\r',   0x1c,   0x1f,   ' ',    0x85,
                            0xa0,   0x1680, 0x180e, 0x2000, 0x2003, 0x200a, 0x200b, 0x2028, 0x2029,
                            0x202f, 0x205f, 0x3000, 0xfeff, ' ',    ' ',    ' ',    '\n',   '\n'};
    std::string text;
    for (size_t n = below(30); n > 0; --n) {
      if (below(4) == 0) {
        add(text, one_of(std::string_view("aZ9.'_-")));
      } else {
        add(text, one_of(all));
      }
    }
    return text;
  }
  std::string numbers() {
    std::string text;
    for (size_t n = below(30); n > 0; --n) {
      const uint32_t codes[] = {
          in('0', '9'), in('0', '9'), in('0', '9'), in(0x660, 0x669), in(0x2160, 0x2188),  0xb2, 0xbd, '.', ',',
          ' ',          in('a', 'f'), '-',          0x3007,           in(0x1d7ce, 0x1d7ff)};
      add(text, one_of(codes));
    }
    return text;
  }
  std::string quotes() {
    const char* parts[] = {"'s", "'S", "'t", "'re", "'RE", "'Ve", "'m", "'LL", "'ll", "'d", "'D", "'x", "it",
                           "I",  " ",  "  ", "we",  "\n",  "'",   "''", "’s",  "'ſ",  "ſ",  "'r", "'l", "'v",
                           "12", "é",  "'K", "can", "\t",  "_",   "\"", ".",   "!?",  "()", "'e", "<|", "|>"};
    std::string text;
    for (size_t n = below(20); n > 0; --n) text += one_of(parts);
    return text;
  }
  std::string english() {
    size_t begin = below(english_.size());
    const auto continues = [&](size_t at) { return at < english_.size() && (english_[at] & 0xc0) == 0x80; };
    while (continues(begin)) ++begin;
    size_t end = std::min(english_.size(), begin + below(300));
    while (continues(end)) ++end;
    return english_.substr(begin, end - begin);
  }
  std::string mixed() {
    const char* parts[] = {"<|endoftext|>", "<|endoftext|", " <|endoftext|> ", "<mask>", " <mask>\n x", "kitn",
                           " kitn s",       "conkitn",      "kitn.",           "dgog",   "dgog \t",     "hot dgog"};
    std::string text;
    for (size_t n = 1 + below(5); n > 0; --n) {
      text += next(below(7));
      text += one_of(parts);
    }
    return text;
  }
  std::string repeated() {
    const char* units[] = {" ", "a", "ab", "\n", "=", "the", " the", "0", "é", "漢", "\r\n", ". ", "aaaab"};
    const std::string unit = one_of(units);
    std::string text;
    for (size_t n = below(200); n > 0; --n) text += unit;
    return text;
  }

  std::mt19937_64 random_;
  std::string english_;
};

}  // namespace lockstep
