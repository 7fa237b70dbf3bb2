// Parses the standard error of kubectl. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The warnings of the API server, without the prefix "Warning: ".
std::vector<std::string> kubectl_warnings(std::string_view err);

// The error message, with the second and later lines indented. Removes
// - warnings;
// - log lines of kubectl (`E1117 ... memcache.go:265]`), unless there is nothing else;
// - objects and long values that kubectl repeats: only the field and the reason remain.
// Returns "" if nothing is left.
std::string kubectl_error_message(std::string_view err);

// The fields that the API server reports as immutable, such as "spec.template". Empty for any other error.
std::vector<std::string> immutable_fields(std::string_view err);

// Whether the API server could not be reached or is temporarily unavailable, so that a retry may succeed.
bool is_unreachable(std::string_view err);

// Whether the user has no permission for this verb and resource.
bool is_forbidden(std::string_view err);

}  // namespace lockstep
