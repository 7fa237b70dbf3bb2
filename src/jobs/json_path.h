// JSONPath templates as kubectl accepts them, for `get -o jsonpath=` and `-o custom-columns=`. Pure functions and
// values, safe from any thread.
//
//   {.items[*].metadata.name}                          fields; values of several results are separated by spaces
//   {.metadata['name']} {.items[0]} {.items[-1]}       quoted keys, elements, elements from the end
//   {.items[0:2]}                                      elements 0 and 1
//   {.items[?(@.status.phase=="Running")].metadata}    the elements for which a comparison holds
//   {range .items[*]}{.metadata.name}{"\n"}{end}       the template inside, for each result
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The results of a path such as `.items[*].metadata.name`, with or without a leading $.
class JsonPath {
 public:
  // Throws Error for a syntax error, with the position.
  static JsonPath parse(std::string_view text);

  // The values at the path. Missing fields have no value.
  std::vector<nlohmann::ordered_json> find(const nlohmann::ordered_json& value) const;

 private:
  struct Step;
  std::vector<std::shared_ptr<const Step>> steps_;
};

// Formats a value with a template. Throws Error for a syntax error in the template.
std::string format_json_path(std::string_view text, const nlohmann::ordered_json& value);

// A value as kubectl prints it: strings without quotes, objects and lists as JSON.
std::string json_text(const nlohmann::ordered_json& value);

// Columns such as `NAME:.metadata.name,PHASE:.status.phase`.
struct CustomColumn {
  std::string header;
  JsonPath path;
};
// Throws Error for a syntax error.
std::vector<CustomColumn> parse_custom_columns(std::string_view text);
// The cells of an object: several results are separated by commas, "<none>" stands for none.
std::vector<std::string> custom_row(const std::vector<CustomColumn>& columns, const nlohmann::ordered_json& object);

}  // namespace lockstep
