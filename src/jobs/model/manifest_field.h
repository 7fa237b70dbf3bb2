// A field of a manifest that knows its path, its file and its line, and refuses what it should not hold. Used by one
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/model/yaml_document.h"

namespace lockstep {

class Field {
 public:
  // The document itself, or the value at a path in it. Both strings and the document must outlive the field.
  Field(const std::string& source, const YamlDocument& document)
      : source_(&source), document_(&document), value_(&document.value) {}

  const nlohmann::ordered_json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  // "job.yaml:7".
  std::string place() const;

  // Throws Error: "job.yaml:7: spec.x <what>".
  [[noreturn]] void fail(const std::string& what) const;

  // The field inside this one, none where it is missing or null. Throws Error when this one is no map.
  std::optional<Field> find(std::string_view key) const;

  // As find(), but it must be there: throws Error "... has no x; <remedy>".
  Field need(std::string_view key, std::string_view remedy) const;

  // The elements of a list.
  std::vector<Field> elements() const;

  // Throws Error for a key that is none of these, with the one that was meant; `elsewhere` are pairs of a key and the
  // path it belongs to.
  void allow(const std::vector<std::string>& keys,
             const std::vector<std::pair<std::string, std::string>>& elsewhere = {}) const;

  std::string text() const;
  bool boolean() const;
  int64_t integer(int64_t least, int64_t most, std::string_view remedy = {}) const;

  // The place of the value among the names. Throws Error naming them.
  size_t choice(const std::vector<std::string>& names) const;

 private:
  Field child(const nlohmann::ordered_json& value, std::string path) const;

  const std::string* source_;
  const YamlDocument* document_;
  const nlohmann::ordered_json* value_;
  std::string path_;
};

}  // namespace lockstep
