// JSON for files that are checked strictly: a name that stands twice is an error. Functions of their arguments, safe
// from any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lockstep::detail {

using Json = nlohmann::json;

// Throws Error saying where the text is no JSON, or which name stands twice in an object.
Json parse_json(std::string_view text);

// A value for a message: as JSON, what is not UTF-8 replaced, shortened when long.
std::string printable(const Json& value);

bool is_utf8(const std::string& text);

}  // namespace lockstep::detail
