#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "jobs/model/object.h"
#include "jobs/model/yaml_document.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxPlainKey = 1000;  // YAML parsers search for the colon after a key in 1024 characters only

bool is_plain_digit(char c) { return c >= '0' && c <= '9'; }

// Bytes of non-ASCII characters count as letters; nearly all such characters are.
bool is_plain_letter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte >= 0x80;
}

// kubectl's order of keys: punctuation before digits before letters, and numbers by value, so that a2 precedes a10.
bool key_less(std::string_view a, std::string_view b) {
  const auto take_number = [](std::string_view& text) {
    const std::string_view number = text.substr(0, std::min(text.find_first_not_of("0123456789"), text.size()));
    text.remove_prefix(number.size());
    return number;
  };
  const auto value = [](std::string_view number) {
    return number.substr(std::min(number.find_first_not_of('0'), number.size()));
  };
  while (!a.empty() && !b.empty()) {
    if (is_plain_digit(a[0]) && is_plain_digit(b[0])) {
      const std::string_view left = take_number(a), right = take_number(b);
      if (value(left).size() != value(right).size()) return value(left).size() < value(right).size();
      if (value(left) != value(right)) return value(left) < value(right);
      if (left.size() != right.size()) return left.size() < right.size();
      continue;
    }
    if (is_plain_letter(a[0]) != is_plain_letter(b[0])) return is_plain_letter(b[0]);
    if (is_plain_digit(a[0]) != is_plain_digit(b[0])) return is_plain_digit(b[0]);
    if (a[0] != b[0]) return static_cast<unsigned char>(a[0]) < static_cast<unsigned char>(b[0]);
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.size() < b.size();
}

template <size_t N>
bool is_one_of(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::ranges::find(words, text) != words.end();
}

// 2024-12-18, optionally followed by a time.
bool looks_like_date(std::string_view text) {
  size_t i = 0, dashes = 0;
  while (i < text.size() && (is_plain_digit(text[i]) || (text[i] == '-' && i > 0))) dashes += text[i++] == '-';
  const bool time = i < text.size() && (text[i] == 'T' || text[i] == 't' || text[i] == ' ' || text[i] == '\t');
  return text.size() >= 8 && is_plain_digit(text[0]) && dashes == 2 && text[4] == '-' && (i == text.size() || time);
}

// 1_000, 0b11 and 12:30:45, which are numbers in YAML 1.1.
bool looks_like_number(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || !(is_plain_digit(text[0]) || text[0] == '.')) return false;
  if (text.starts_with("0b") || text.starts_with("0x") || text.starts_with("0o") || text.starts_with("0X") ||
      text.starts_with("0B") || text.starts_with("0O"))
    return std::ranges::all_of(text.substr(2), [](char c) {
      return is_plain_digit(c) || c == '_' || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    });
  std::string plain;
  std::ranges::copy_if(text, std::back_inserter(plain), [](char c) { return c != '_'; });
  if (detail::is_decimal(plain)) return true;
  return std::ranges::all_of(plain, [](char c) { return is_plain_digit(c) || c == ':' || c == '.'; }) &&
         plain.find(':') != plain.npos;
}

// Whether a YAML parser (1.1 or 1.2) may read the unquoted text as something other than a string.
bool needs_double_quotes(std::string_view text) {
  constexpr std::array<std::string_view, 19> kWords = {"y",  "Y",  "yes", "Yes", "YES", "n",   "N",  "no", "No", "NO",
                                                       "on", "On", "ON",  "off", "Off", "OFF", "<<", "=",  "~"};
  return is_one_of(text, kWords) || !detail::plain_scalar(text).is_string() || looks_like_date(text) ||
         looks_like_number(text);
}

// A character of UTF-8 text: its code point and its size in bytes.
struct Character {
  uint32_t code;
  size_t size;
};

// Decodes the first character. An invalid byte counts as a character of its own value.
Character decode_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const size_t size = byte(0) < 0xc0 ? 1 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : 4;
  if (size == 1 || text.size() < size) return {byte(0), 1};
  uint32_t code = byte(0) & (0xffU >> (size + 1));
  for (size_t i = 1; i < size; ++i) code = code << 6 | (byte(i) & 0x3f);
  return {code, size};
}

// Whether the character may appear unescaped. Unicode's line separators may not.
bool is_printable(uint32_t code) {
  return (code >= 0x20 && code <= 0x7e) ||
         (code >= 0xa0 && code != 0x2028 && code != 0x2029 && code != 0xfeff && code != 0xfffe && code != 0xffff);
}

// Properties of a string that decide in which YAML style it is written.
struct ScalarTraits {
  bool special = false;             // has characters that need escapes, other than newlines
  bool breaks = false;              // has newlines
  bool space_before_break = false;  // has trailing spaces in a line, invisible in a literal block
  bool signs = false;               // has YAML syntax, such as a leading `- ` or `: ` inside
  bool outer_space = false;         // begins or ends with a space
};

ScalarTraits traits_of(std::string_view text) {
  ScalarTraits out;
  constexpr std::string_view kFirst = "#,[]{}&*!|>'\"%@`";
  const auto blank_at = [&](size_t i) { return i >= text.size() || text[i] == ' ' || text[i] == '\n'; };
  out.signs = text.starts_with("---") || text.starts_with("...") ||
              (!text.empty() && kFirst.find(text[0]) != kFirst.npos) ||
              (!text.empty() && (text[0] == '-' || text[0] == '?') && blank_at(1));
  out.outer_space = text.starts_with(' ') || text.ends_with(' ');
  for (size_t i = 0; i < text.size();) {
    const Character each = decode_character(text.substr(i));
    out.breaks = out.breaks || each.code == '\n';
    out.special = out.special || (each.code != '\n' && !is_printable(each.code));
    out.space_before_break = out.space_before_break || text.substr(i).starts_with(" \n");
    out.signs = out.signs || (each.code == ':' && blank_at(i + 1)) || (each.code == '#' && i > 0 && blank_at(i - 1));
    i += each.size;
  }
  return out;
}

std::string double_quoted(std::string_view text) {
  constexpr std::string_view kEscaped("\0\a\b\t\n\v\f\r\x1b\"\\", 11), kLetters = "0abtnvfre\"\\";
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const Character each = decode_character(text.substr(i));
    const size_t known = each.size == 1 ? kEscaped.find(text[i]) : kEscaped.npos;
    if (known != kEscaped.npos)
      out += fmt::format("\\{}", kLetters[known]);
    else if (is_printable(each.code))
      out += text.substr(i, each.size);
    else
      out += each.code < 0x100 ? fmt::format("\\x{:02X}", each.code) : fmt::format("\\u{:04X}", each.code);
    i += each.size;
  }
  return out + '"';
}

std::string single_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "''" : std::string(1, c);
  return out + '\'';
}

// The text on one line, quoted where necessary.
std::string scalar(std::string_view text) {
  const ScalarTraits traits = traits_of(text);
  if (traits.special || traits.breaks || text.empty() || needs_double_quotes(text)) return double_quoted(text);
  return traits.signs || traits.outer_space ? single_quoted(text) : std::string(text);
}

class YamlWriter {
 public:
  std::string write(const Json& value) {
    if (value.is_string()) return scalar(value.get_ref<const std::string&>()) + '\n';
    put(value, 0, false);
    return std::move(out_);
  }

 private:
  // Appends a value after "key:" (`in_map`), after "- " or at the start of the document, and ends the line.
  void put(const Json& value, size_t indent, bool in_map) {
    const bool top = out_.empty();
    if (value.is_object() && !value.empty()) {
      if (in_map) out_ += '\n';
      put_map(value, indent, !in_map);
    } else if (value.is_array() && !value.empty()) {
      if (in_map) out_ += '\n';
      put_list(value, indent, !in_map);
    } else {
      if (!top && out_.back() != ' ') out_ += ' ';
      put_scalar(value, indent);
    }
  }

  // With `inside` the first entry continues the current line.
  void put_map(const Json& map, size_t indent, bool inside) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : map.items()) keys.push_back(key);
    std::ranges::sort(keys, key_less);
    for (const std::string& key : keys) {
      if (!inside) out_.append(indent, ' ');
      inside = false;
      const std::string written = scalar(key);
      const Json& value = map[key];
      if (written.size() <= kMaxPlainKey) {
        out_ += written + ":";
        put(value, value.is_array() ? indent : indent + 2, true);
      } else {
        out_ += "? " + written + "\n" + std::string(indent, ' ') + ":";
        put(value, indent + 2, true);
      }
    }
  }

  void put_list(const Json& list, size_t indent, bool inside) {
    for (const Json& value : list) {
      if (!inside) out_.append(indent, ' ');
      inside = false;
      out_ += "- ";
      put(value, indent + 2, false);
    }
  }

  void put_scalar(const Json& value, size_t indent) {
    if (value.is_string()) {
      put_text(value.get_ref<const std::string&>(), indent);
    } else if (value.is_number_float()) {
      const double number = value.get<double>();
      // Without the decimal point it would be read as an integer, which has no negative zero.
      out_ += number == 0 && std::signbit(number) ? std::string("-0.0\n") : fmt::format("{}\n", number);
    } else {
      out_ += value.dump() + '\n';
    }
  }

  void put_text(const std::string& text, size_t indent) {
    const ScalarTraits traits = traits_of(text);
    if (!traits.breaks || traits.special || traits.space_before_break || text.ends_with(' ')) {
      out_ += scalar(text) + '\n';
      return;
    }
    // Parsers take a block's indentation from its first line. If that is empty or begins with a space, state it.
    out_ += text[0] == ' ' || text[0] == '\n' ? "|2" : "|";
    const bool only_break = text.find_first_not_of('\n') == text.npos;
    if (!text.ends_with('\n'))
      out_ += '-';
    else if (text.ends_with("\n\n") || only_break)
      out_ += '+';
    out_ += '\n';
    std::string_view rest = text;
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      if (!line.empty()) out_.append(indent, ' ');
      out_ += line;
      out_ += '\n';
      rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    }
  }

  std::string out_;
};

}  // namespace

std::string to_yaml(const nlohmann::ordered_json& value) { return YamlWriter().write(value); }

}  // namespace lockstep
