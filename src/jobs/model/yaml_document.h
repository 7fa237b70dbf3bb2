// Parses YAML into JSON values, with the line number of every field. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The largest manifest file, in bytes.
inline constexpr int64_t kMaxManifestBytes = int64_t{16} << 20;

struct YamlDocument {
  nlohmann::ordered_json value;
  std::map<std::string, int> lines;  // path ("spec.containers[0].name") -> line, from 1; unknown lines are missing
  int line = 1;                      // the first line of the document
};

// The path of a field or list element: "spec" and "name" make "spec.name", "args" and 2 make "args[2]".
std::string path_of(const std::string& parent, std::string_view key);
std::string path_of(const std::string& parent, size_t index);

// Parses all documents that are not empty. Plain scalars have the types of YAML's core schema, except that a number
// with a leading zero is octal, as in kubectl. Anchors and merge keys are resolved. JSON is accepted too, also with
// tabs. Throws Error with source and line for a syntax error, a duplicate key, .inf and .nan, and beyond a limit:
// 16 MiB, 64 levels of nesting, 50,000 values in a document after resolving anchors.
std::vector<YamlDocument> parse_yaml_documents(std::string_view text, const std::string& source);

namespace detail {

// The typed value of a plain (unquoted) scalar.
nlohmann::ordered_json plain_scalar(std::string_view text);

// Whether `text` is [+-]digits with an optional decimal point and an optional exponent.
bool is_decimal(std::string_view text);

}  // namespace detail

}  // namespace lockstep
