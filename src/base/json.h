// Parsing of untrusted JSON: files, output of other programs, messages of other processes. parse_json() limits size,
// depth and counts before it builds a value, because copying, comparing and writing a value recurse once per level.
// Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "lockstep/error.h"

namespace lockstep {

struct JsonLimits {
  size_t bytes = size_t{16} << 20;
  int depth = 64;                       // nested objects and arrays
  size_t values = 1'000'000;            // including objects, arrays and keys
  size_t keys = 10'000;                 // per object: lookup in ordered_json is linear
  size_t key_bytes = size_t{16} << 20;  // per key
  bool repeated_keys = false;           // whether an object may repeat a key; the last occurrence wins
};

// The text is not JSON. Exceeded limits and repeated keys are plain Errors.
class JsonSyntaxError : public Error {
 public:
  JsonSyntaxError(const std::string& message, int64_t at) : Error(message), line(at) {}
  const int64_t line;  // starts at 1
};

// Parses a text. `what` names it in messages: "manifest.json", "kubectl get". Throws JsonSyntaxError with line, column
// and reason, or Error with the exceeded limit. `Json` is nlohmann::json or nlohmann::ordered_json.
template <class Json>
Json parse_json(std::string_view text, std::string_view what, const JsonLimits& limits = {});

extern template nlohmann::json parse_json<nlohmann::json>(std::string_view, std::string_view, const JsonLimits&);
extern template nlohmann::ordered_json parse_json<nlohmann::ordered_json>(std::string_view, std::string_view,
                                                                          const JsonLimits&);

// The message of an nlohmann exception without the prefix "[json.exception...]", safe for a terminal.
std::string json_error_text(const nlohmann::json::exception& error);

// Formats a value for a message: as JSON, safe for a terminal, truncated when long. REQUIRES: the depth of the value is
// limited.
std::string printable_json(const nlohmann::json& value);
std::string printable_json(const nlohmann::ordered_json& value);

// Returns the value as an integer. Throws Error, naming `what`, if it is not an integer from `low` to `high`.
template <class Json>
int64_t integer_in(const Json& value, std::string_view what, int64_t low = std::numeric_limits<int64_t>::min(),
                   int64_t high = std::numeric_limits<int64_t>::max());

extern template int64_t integer_in<nlohmann::json>(const nlohmann::json&, std::string_view, int64_t, int64_t);
extern template int64_t integer_in<nlohmann::ordered_json>(const nlohmann::ordered_json&, std::string_view, int64_t,
                                                           int64_t);

// Returns the integer at a key of an object. Throws Error if it does not fit T, where the conversion of nlohmann would
// round or truncate.
template <class T, class Json>
T integer_at(const Json& object, const char* key) {
  return static_cast<T>(integer_in(object.at(key), key, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

}  // namespace lockstep
