#include "jobs/model/yaml_document.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/yaml.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxValues = 50'000;       // in a document, after resolving anchors
constexpr int kMaxLevels = 64;              // of nesting
constexpr size_t kMaxPathBytes = 64 << 20;  // total size of YamlDocument::lines' keys

bool is_number_digit(char c) { return c >= '0' && c <= '9'; }

void check_characters(std::string_view text, const std::string& source) {
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    const size_t size = text[i] == '\0' ? 0 : utf8_character_size(text.substr(i));
    if (size == 0)
      throw_error("{}:{}: byte {:#04x} is not valid UTF-8; save the manifest as UTF-8 text", source, line,
                  static_cast<unsigned char>(text[i]));
    line += text[i] == '\n';
    i += size;
  }
}

// The text of a scalar as UTF-8. yaml-cpp turns the escapes \_ and \N into single bytes, which are not valid UTF-8.
std::string scalar_text(const YAML::Node& scalar) {
  const std::string& text = scalar.Scalar();
  if (is_utf8(text)) return text;
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t size = utf8_character_size(std::string_view(text).substr(i));
    if (size == 0) out += '\xc2';
    out.append(text, i, std::max<size_t>(size, 1));
    i += std::max<size_t>(size, 1);
  }
  return out;
}

std::optional<Json> parse_integer(std::string_view text) {
  const bool negative = text.starts_with('-');
  std::string_view digits = text.substr(text.starts_with('-') || text.starts_with('+') ? 1 : 0);
  int base = 10;
  if (digits.starts_with("0x"))
    base = 16, digits.remove_prefix(2);
  else if (digits.starts_with("0o"))
    base = 8, digits.remove_prefix(2);
  else if (digits.size() > 1 && digits[0] == '0')
    base = 8;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (!negative) return value <= uint64_t{INT64_MAX} ? Json(static_cast<int64_t>(value)) : Json(value);
  if (value > uint64_t{INT64_MAX}) return std::nullopt;
  return Json(-static_cast<int64_t>(value));
}

// Converts yaml-cpp's nodes of one document into JSON, and records the line of each.
class YamlConverter {
 public:
  YamlConverter(const std::string& source, YamlDocument& document) : source_(source), document_(document) {}

  Json convert(const YAML::Node& node, const std::string& path, int level) {
    const int line = node.Mark().line + 1;
    if (++values_ > kMaxValues)  // load_yaml() limits aliases, but merge keys can multiply values as well
      throw_error(
          "{}:{}: more than {} values; this is too much for a manifest: remove merge keys that repeat each other",
          source_, line, kMaxValues);
    if (node.IsMap()) return convert_map(node, path, level);
    if (node.IsSequence()) {
      Json list = Json::array();
      for (size_t i = 0; i < node.size(); ++i) {
        const std::string child = path_of(path, i);
        record_line(child, node[i].Mark().line + 1);
        list.push_back(convert(node[i], child, level + 1));
      }
      return list;
    }
    if (!node.IsScalar()) return nullptr;
    return convert_scalar(node, line);
  }

 private:
  void record_line(const std::string& path, int line) {
    path_bytes_ += path.size();
    if (path_bytes_ > kMaxPathBytes)
      throw_error("{}:{}: the paths of nested fields are too long; shorten the keys", source_, line);
    document_.lines.emplace(path, line);
  }

  Json convert_scalar(const YAML::Node& node, int line) {
    const std::string& tag = node.Tag();
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return scalar_text(node);
    if (tag == "tag:yaml.org,2002:binary")
      throw_error("{}:{}: !!binary is not supported; write the text in quotes", source_, line);
    Json value = detail::plain_scalar(scalar_text(node));
    if (value.is_number_float() && !std::isfinite(value.get<double>()))
      throw_error("{}:{}: \"{}\" is not a finite number; write it in quotes if it is text", source_, line,
                  scalar_text(node));
    return value;
  }

  Json convert_map(const YAML::Node& node, const std::string& path, int level) {
    Json map = Json::object();
    std::set<std::string> own;
    std::vector<YAML::Node> merged;
    for (const auto& entry : node) {
      const int line = entry.first.Mark().line + 1;
      if (!entry.first.IsScalar())
        throw_error("{}:{}: a key is {}; keys must be strings", source_, line,
                    entry.first.IsNull() ? "empty" : "a list or map");
      const std::string key = scalar_text(entry.first);
      if (key == "<<" && entry.first.Tag() != "!") {
        merged.push_back(entry.second);
        continue;
      }
      const std::string child = path_of(path, key);
      if (!own.insert(key).second) throw_error("{}:{}: {} appears twice; remove one", source_, line, printable(child));
      record_line(child, line);
      map[key] = convert(entry.second, child, level + 1);
    }
    // The map's own keys win over merged ones; among those, the first wins.
    for (const YAML::Node& each : merged) merge(map, each, path, level);
    return map;
  }

  void merge(Json& map, const YAML::Node& from, const std::string& path, int level) {
    if (from.IsSequence()) {
      if (level > kMaxLevels)
        throw_error("{}:{}: << has too many lists inside lists; write an alias such as `<<: *base`", source_,
                    from.Mark().line + 1);
      for (size_t i = 0; i < from.size(); ++i) merge(map, from[i], path, level + 1);
      return;
    }
    if (!from.IsMap())
      throw_error("{}:{}: << needs a map or a list of maps; write an alias such as `<<: *base`", source_,
                  from.Mark().line + 1);
    const Json other = convert(from, path, level + 1);
    for (const auto& [key, value] : other.items())
      if (!map.contains(key)) map[key] = value;
  }

  const std::string& source_;
  YamlDocument& document_;
  size_t values_ = 0, path_bytes_ = 0;
};

}  // namespace

bool detail::is_decimal(std::string_view text) {
  size_t i = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  const auto skip_digits = [&] {
    const size_t begin = i;
    while (i < text.size() && is_number_digit(text[i])) ++i;
    return i - begin;
  };
  size_t digits = skip_digits();
  if (i < text.size() && text[i] == '.') ++i, digits += skip_digits();
  if (digits == 0) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    if (skip_digits() == 0) return false;
  }
  return i == text.size();
}

nlohmann::ordered_json detail::plain_scalar(std::string_view text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  if (std::optional<Json> number = parse_integer(text)) return *number;
  if (is_decimal(text)) {
    // from_chars rejects a leading plus, and does not return infinity for a number beyond the range of doubles.
    if (text.starts_with('+')) text.remove_prefix(1);
    double value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec == std::errc::result_out_of_range) return std::strtod(std::string(text).c_str(), nullptr);
    return value;
  }
  const std::string_view unsigned_text = text.substr(text.starts_with('-') || text.starts_with('+') ? 1 : 0);
  for (const char* name : {".inf", ".Inf", ".INF"})
    if (unsigned_text == name) return text.starts_with('-') ? -HUGE_VAL : HUGE_VAL;
  for (const char* name : {".nan", ".NaN", ".NAN"})
    if (text == name) return std::nan("");
  return std::string(text);
}

std::string path_of(const std::string& parent, std::string_view key) {
  return parent.empty() ? std::string(key) : fmt::format("{}.{}", parent, key);
}

std::string path_of(const std::string& parent, size_t index) { return fmt::format("{}[{}]", parent, index); }

std::vector<YamlDocument> parse_yaml_documents(std::string_view text, const std::string& source) {
  check_characters(text, source);
  std::vector<YamlDocument> out;
  try {
    const YamlLimits limits{.bytes = kMaxManifestBytes, .depth = kMaxLevels, .values = kMaxValues};
    for (const YAML::Node& root : load_yaml(std::string(text), source, limits)) {
      if (root.IsNull()) continue;
      YamlDocument& document = out.emplace_back();
      document.line = root.Mark().line + 1;
      document.value = YamlConverter(source, document).convert(root, "", 0);
      if (document.value.is_null()) out.pop_back();  // only a tag
    }
  } catch (const YAML::Exception& error) {
    // JSON allows escapes and tabs that YAML parsers reject.
    try {
      const JsonLimits limits{
          .bytes = kMaxManifestBytes, .depth = kMaxLevels, .values = kMaxValues, .key_bytes = YamlLimits{}.key_bytes};
      Json value = parse_json<Json>(text, source, limits);
      if (value.is_null()) return {};
      return {{std::move(value), {}, 1}};
    } catch (const JsonSyntaxError&) {  // report the YAML error below
    }
    if (error.mark.is_null()) throw_error("{}: not YAML: {}", source, error.msg);
    throw_error("{}:{}:{}: not YAML: {}; check the indentation, quotes and colons there", source, error.mark.line + 1,
                error.mark.column + 1, error.msg);
  }
  return out;
}

}  // namespace lockstep
