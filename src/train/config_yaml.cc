#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/yaml.h"
#include "train/config.h"

namespace lockstep {
namespace {

// `filename:line`; lines are counted from 1.
std::string position(const std::string& filename, const YAML::Node& node) {
  return fmt::format("{}:{}", filename, node.Mark().line + 1);
}

std::string_view kind_of(const YAML::Node& node) {
  if (node.IsMap()) return "a map";
  if (node.IsSequence()) return "a list";
  return node.IsNull() ? "empty" : "a single value";
}

// The value of a key as text: a scalar, or the elements of a list joined by the key's separator.
std::string value_text(const std::string& where, const ConfigKey& key, const YAML::Node& node) {
  const bool list = key.separator() != '\0';
  const auto checked = [&](const std::string& text) {
    if (list && text.empty()) throw_error("{}: {}: {}", where, key.name, empty_element(text));
    return text;
  };
  if (node.IsScalar()) return checked(node.Scalar());
  if (!list || !node.IsSequence())
    throw_error("{}: {} is {}; expected {}, such as `{}: {}`", where, key.name, kind_of(node),
                list ? "a list or a single value" : "a single value", key.name,
                list                                        ? "[a, b]"
                : node.IsNull() && text_of({}, key).empty() ? "\"\""
                                                            : text_of({}, key));
  std::string out;
  for (const YAML::Node& element : node) {
    if (!element.IsScalar())
      throw_error("{}: an element of {} is {}; expected single values", where, key.name, kind_of(element));
    if (!out.empty()) out += key.separator();
    out += checked(element.Scalar());
  }
  return out;
}

YAML::Node load(const std::string& text, const std::string& filename) {
  try {
    const std::vector<YAML::Node> documents = load_yaml(text, filename, {.bytes = 1 << 20, .depth = 16});
    if (documents.size() > 1)
      throw_error("{}: contains {} YAML documents, but only one is allowed; remove the lines `---`", filename,
                  documents.size());
    return documents.empty() ? YAML::Node() : documents[0];
  } catch (const YAML::Exception& error) {
    if (error.mark.is_null())
      throw_error("{}: invalid YAML: {}; write lines such as `batch_size: 128`", filename, error.msg);
    throw_error("{}:{}:{}: invalid YAML: {}; write lines such as `batch_size: 128`", filename, error.mark.line + 1,
                error.mark.column + 1, error.msg);
  }
}

// A text as a YAML scalar; quoted only if it could otherwise be misread.
std::string yaml_quoted(const std::string& text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '/' || c == '+';
  };
  const auto inside = [&](char c) { return plain(c) || c == '-' || c == '='; };
  const bool reads_as_null = text == "null" || text == "Null" || text == "NULL";
  if (!text.empty() && plain(text[0]) && std::all_of(text.begin(), text.end(), inside) && !reads_as_null) return text;
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", c);
    else if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + "\"";
}

}  // namespace

TrainConfig parse_yaml(const std::string& text, const std::string& filename, KeyLines* lines) {
  const YAML::Node root = load(text, filename);
  if (root.IsNull()) return {};
  if (!root.IsMap())
    throw_error("{}: the file is {}; expected a map of keys: write lines such as `batch_size: 128`",
                position(filename, root), kind_of(root));
  ConfigMap values;
  KeyLines seen;
  TrainConfig scratch;
  for (const auto& pair : root) {
    const YAML::Node& name = pair.first;
    const std::string where = position(filename, name);
    if (!name.IsScalar()) throw_error("{}: a key is {}; expected a name", where, kind_of(name));
    const ConfigKey* key = find_config_key(name.Scalar());
    if (!key) throw_unknown_key(where, name.Scalar());
    if (const auto [before, added] = seen.emplace(std::string(key->name), where); !added)
      throw_error("{}: {} is given twice, first at {}; keep one", where, key->name, before->second);
    const std::string value = value_text(where, *key, pair.second);
    if (const std::string problem = assign(scratch, *key, value); !problem.empty())
      throw_error("{}: {}: {}", where, key->name, problem);
    values.emplace(key->name, value);
  }
  if (lines) *lines = std::move(seen);
  return overlay({}, values, filename);
}

std::string to_yaml(const TrainConfig& config) {
  std::string out;
  std::string_view group;
  for (const ConfigKey& key : config_keys()) {
    if (group != key.group) out += fmt::format("{}# {}\n", out.empty() ? "" : "\n", key.group);
    group = key.group;
    std::string value;
    if (key.separator() != '\0') {
      for (const std::string& element : elements_of(config, key))
        value += (value.empty() ? "" : ", ") + yaml_quoted(element);
      value = "[" + value + "]";
    } else {
      value = yaml_quoted(text_of(config, key));
    }
    out += fmt::format("{}: {}\n", key.name, value);
  }
  return out;
}

}  // namespace lockstep
