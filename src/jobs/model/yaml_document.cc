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

constexpr size_t kMostValues = 50'000;  // of a document, with its anchors resolved
constexpr int kMostLevels = 64;
constexpr size_t kMostPathBytes = 64 << 20;  // of all paths in a document, which are kept with their lines

bool is_number_digit(char c) { return c >= '0' && c <= '9'; }

void check_characters(std::string_view text, const std::string& source) {
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    const size_t size = text[i] == '\0' ? 0 : utf8_character_size(text.substr(i));
    if (size == 0)
      throw_error("{}:{}: byte {:#04x} is no text in UTF-8; a manifest is YAML or JSON in UTF-8", source, line,
                  static_cast<unsigned char>(text[i]));
    line += text[i] == '\n';
    i += size;
  }
}

// The text of a scalar in a text of UTF-8. yaml-cpp makes single bytes, which are no UTF-8, of the escapes \_ and \N.
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

std::optional<Json> integer(std::string_view text) {
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

class Converter {
 public:
  Converter(const std::string& source, YamlDocument& document) : source_(source), document_(document) {}

  Json convert(const YAML::Node& node, const std::string& path, int level) {
    const int line = node.Mark().line + 1;
    if (++values_ > kMostValues)  // merge keys may repeat more than aliases do
      throw_error("{}:{}: more than {} values; that is no manifest: look for merge keys that repeat each other",
                  source_, line, kMostValues);
    if (node.IsMap()) return convert_map(node, path, level);
    if (node.IsSequence()) {
      Json list = Json::array();
      for (size_t i = 0; i < node.size(); ++i) {
        const std::string child = path_of(path, i);
        note(child, node[i].Mark().line + 1);
        list.push_back(convert(node[i], child, level + 1));
      }
      return list;
    }
    if (!node.IsScalar()) return nullptr;
    return convert_scalar(node, line);
  }

 private:
  void note(const std::string& path, int line) {
    path_bytes_ += path.size();
    if (path_bytes_ > kMostPathBytes)
      throw_error("{}:{}: the names of values inside values are too long; shorten the keys", source_, line);
    document_.lines.emplace(path, line);
  }

  Json convert_scalar(const YAML::Node& node, int line) {
    const std::string& tag = node.Tag();
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return scalar_text(node);
    if (tag == "tag:yaml.org,2002:binary")
      throw_error("{}:{}: !!binary is not read; write the text in quotes", source_, line);
    Json value = detail::plain_scalar(scalar_text(node));
    if (value.is_number_float() && !std::isfinite(value.get<double>()))
      throw_error("{}:{}: \"{}\" is no number that an object can hold; put it in quotes if it is text", source_, line,
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
        throw_error("{}:{}: a key is {}; keys are text", source_, line,
                    entry.first.IsNull() ? "empty" : "a list or map");
      const std::string key = scalar_text(entry.first);
      if (key == "<<" && entry.first.Tag() != "!") {
        merged.push_back(entry.second);
        continue;
      }
      const std::string child = path_of(path, key);
      if (!own.insert(key).second) throw_error("{}:{}: {} is there twice; remove one", source_, line, printable(child));
      note(child, line);
      map[key] = convert(entry.second, child, level + 1);
    }
    // What a map says itself counts before what it takes over, and of that the first.
    for (const YAML::Node& each : merged) merge(map, each, path, level);
    return map;
  }

  void merge(Json& map, const YAML::Node& from, const std::string& path, int level) {
    if (from.IsSequence()) {
      if (level > kMostLevels) throw_error("{}:{}: << takes over lists inside lists", source_, from.Mark().line + 1);
      for (size_t i = 0; i < from.size(); ++i) merge(map, from[i], path, level + 1);
      return;
    }
    if (!from.IsMap())
      throw_error("{}:{}: << takes over a map, or a list of maps; give an alias such as `<<: *base`", source_,
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
  if (std::optional<Json> number = integer(text)) return *number;
  if (is_decimal(text)) {
    // from_chars takes no plus; a number beyond the range of doubles is infinite.
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
    const YamlLimits limits{.bytes = kMostManifestText, .depth = kMostLevels, .values = kMostValues};
    for (const YAML::Node& root : load_yaml(std::string(text), source, limits)) {
      if (root.IsNull()) continue;
      YamlDocument& document = out.emplace_back();
      document.line = root.Mark().line + 1;
      document.value = Converter(source, document).convert(root, "", 0);
      if (document.value.is_null()) out.pop_back();  // a tag and nothing else
    }
  } catch (const YAML::Exception& error) {
    // JSON has escapes and uses of the tab that readers of YAML do not know.
    try {
      const JsonLimits limits{
          .bytes = kMostManifestText, .depth = kMostLevels, .values = kMostValues, .key_bytes = YamlLimits{}.key_bytes};
      Json value = parse_json<Json>(text, source, limits);
      if (value.is_null()) return {};
      return {{std::move(value), {}, 1}};
    } catch (const JsonSyntaxError&) {  // it is neither
    }
    if (error.mark.is_null()) throw_error("{}: not YAML: {}", source, error.msg);
    throw_error("{}:{}:{}: not YAML: {}; look at the indentation, the quotes and the colons there", source,
                error.mark.line + 1, error.mark.column + 1, error.msg);
  }
  return out;
}

}  // namespace lockstep
