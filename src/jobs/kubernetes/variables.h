// The variables of manifest templates: their names, valid values and defaults. Pure functions, safe from any thread.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

// "indexed-job", "jaxjob", "jobset", "trainjob".
const std::vector<std::string>& manifest_kinds();

// A variable that users may set, for help and documentation.
struct ManifestVariable {
  const char* name;
  const char* type;  // "integer", "string"
  const char* help;
};
const std::vector<ManifestVariable>& manifest_variables();

struct VariablesOptions {
  std::string kind = "indexed-job";
  bool allow_unknown = false;                    // keep variables that are not in the table, for a user's template
  std::function<std::string()> make_token = {};  // called if neither token nor token_secret is set
};

// Checks `given`, adds defaults and derived variables, and returns all variables for the template. Throws Error naming
// the variable, its value and the remedy. REQUIRES: options.kind is one of manifest_kinds().
nlohmann::ordered_json complete_variables(const nlohmann::ordered_json& given, const VariablesOptions& options);

// Sets a variable from `key=value`. The value is parsed as JSON if possible, else it is a string. Throws Error if the
// key is missing.
void set_variable(nlohmann::ordered_json& variables, const std::string& assignment);

// Parses a variables file. Throws Error with the line if it is not a JSON object.
nlohmann::ordered_json parse_variables(const std::string& text, const std::string& source);

}  // namespace lockstep
