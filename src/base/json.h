// JSON from outside: files, other programs' output, other processes. Every such text goes through parse_json(), which
// bounds its size, depth and counts before it builds a value: copying, comparing and writing a value recurse once per
// level. Pure functions, safe from any thread.
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
  int depth = 64;                       // objects and arrays inside each other
  size_t values = 1'000'000;            // with objects, arrays and keys
  size_t keys = 10'000;                 // of one object: ordered_json searches them one by one
  size_t key_bytes = size_t{16} << 20;  // of one key
  bool repeated_keys = false;           // of one object; where they are allowed the last one wins
};

// The text is not JSON. What exceeds a limit, or repeats a key, is an Error of another type.
class JsonSyntaxError : public Error {
 public:
  JsonSyntaxError(const std::string& message, int64_t at) : Error(message), line(at) {}
  const int64_t line;  // from 1 on
};

// Reads a whole text. `what` names it in messages: "manifest.json", "kubectl get". Throws JsonSyntaxError with line,
// column and reason, or Error naming the limit. `Json` is nlohmann::json or nlohmann::ordered_json.
template <class Json>
Json parse_json(std::string_view text, std::string_view what, const JsonLimits& limits = {});

extern template nlohmann::json parse_json<nlohmann::json>(std::string_view, std::string_view, const JsonLimits&);
extern template nlohmann::ordered_json parse_json<nlohmann::ordered_json>(std::string_view, std::string_view,
                                                                          const JsonLimits&);

// The text of an exception of nlohmann's, without its "[json.exception...]", safe for a terminal.
std::string json_error_text(const nlohmann::json::exception& error);

// A value for a message: as JSON, safe for a terminal, cut when long. REQUIRES: a value of bounded depth.
std::string printable_json(const nlohmann::json& value);
std::string printable_json(const nlohmann::ordered_json& value);

// A whole number from `low` to `high`. Throws Error, naming `what`, for a fraction, a text, or a number out of range.
template <class Json>
int64_t integer_in(const Json& value, std::string_view what, int64_t low = std::numeric_limits<int64_t>::min(),
                   int64_t high = std::numeric_limits<int64_t>::max());

extern template int64_t integer_in<nlohmann::json>(const nlohmann::json&, std::string_view, int64_t, int64_t);
extern template int64_t integer_in<nlohmann::ordered_json>(const nlohmann::ordered_json&, std::string_view, int64_t,
                                                           int64_t);

// That of a key of an object, which fits T: nlohmann's own conversion rounds and cuts numbers that do not.
template <class T, class Json>
T whole_number(const Json& object, const char* key) {
  return static_cast<T>(integer_in(object.at(key), key, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

}  // namespace lockstep
