// Reading what kubectl prints on standard error. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The warnings of the API server, each without "Warning: ".
std::vector<std::string> kubectl_warnings(std::string_view err);

// The message without warnings, log lines of kubectl's own code (`E1117 ... memcache.go:265]`, unless there is nothing
// else) and the objects that kubectl repeats: of a value longer than a line only the field and the reason stay. Several
// lines are indented below the first one. Empty when nothing is left.
std::string kubectl_complaint(std::string_view err);

// The fields that the API server does not let change: "spec.template". Empty when that is not the complaint.
std::vector<std::string> immutable_fields(std::string_view err);

// Whether the API server could not be reached or could not answer now, so that asking again may help.
bool is_unreachable(std::string_view err);

// The API server knows the user and refuses this verb on this resource.
bool is_forbidden(std::string_view err);

}  // namespace lockstep
