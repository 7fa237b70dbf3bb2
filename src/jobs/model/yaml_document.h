// YAML as values that know where they stood. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Of a file of manifests.
inline constexpr int64_t kMostManifestText = int64_t{16} << 20;

struct YamlDocument {
  nlohmann::ordered_json value;
  std::map<std::string, int> lines;  // of "spec.containers[0].name" and all others, from 1 on; none where unknown
  int line = 1;                      // of its beginning
};

// What a field is called inside another: "spec" and "name" make "spec.name".
std::string path_of(const std::string& parent, std::string_view key);
std::string path_of(const std::string& parent, size_t index);

// All documents of a text that hold something. Plain scalars have the types of YAML's core schema, except that a number
// with a leading zero is octal, as kubectl reads it; anchors and merge keys are resolved. JSON is YAML here, also with
// tabs. Throws Error with source and line for what is no YAML, a key that is there twice, .inf and .nan, and for what
// exceeds a limit: 16 MiB, 64 levels, 50,000 values of a document with its anchors resolved.
std::vector<YamlDocument> parse_yaml_documents(std::string_view text, const std::string& source);

namespace detail {

// The value of a plain scalar, of any type.
nlohmann::ordered_json plain_scalar(std::string_view text);

// [+-]digits with at most one point and an exponent.
bool is_decimal(std::string_view text);

}  // namespace detail

}  // namespace lockstep
