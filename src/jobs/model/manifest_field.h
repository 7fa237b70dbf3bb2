// ManifestField: a value in a manifest together with its path, file and line, so that every error can name them.
// Used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/model/yaml_document.h"

namespace lockstep {

class ManifestField {
 public:
  // The root of a document. REQUIRES: `source` and `document` outlive this field and all fields derived from it.
  ManifestField(const std::string& source, const YamlDocument& document)
      : source_(&source), document_(&document), value_(&document.value) {}

  const nlohmann::ordered_json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  // "job.yaml:7".
  std::string location() const;

  // Throws Error: "job.yaml:7: spec.x <what>".
  [[noreturn]] void fail(const std::string& what) const;

  // The value of `key` in this map; nullopt if it is missing or null. Throws Error if this is not a map.
  std::optional<ManifestField> find(std::string_view key) const;

  // Like find(), but throws Error "... has no <key>; <remedy>" if the key is missing or null.
  ManifestField require(std::string_view key, std::string_view remedy) const;

  // The elements of this list. Throws Error if this is not a list.
  std::vector<ManifestField> elements() const;

  // Throws Error for a key of this map that is not in `keys`, and suggests the closest one. `elsewhere` has pairs of
  // a key and the path where it belongs, for a better message.
  void allow_only(const std::vector<std::string>& keys,
                  const std::vector<std::pair<std::string, std::string>>& elsewhere = {}) const;

  // The value as this type. Throw Error if it has another type or is out of range.
  std::string text() const;
  bool boolean() const;
  int64_t integer(int64_t least, int64_t most, std::string_view remedy = {}) const;

  // The index of this string in `names`. Throws Error with the list of names if it is not among them.
  size_t choice(const std::vector<std::string>& names) const;

 private:
  ManifestField child(const nlohmann::ordered_json& value, std::string path) const;

  const std::string* source_;
  const YamlDocument* document_;
  const nlohmann::ordered_json* value_;
  std::string path_;
};

}  // namespace lockstep
