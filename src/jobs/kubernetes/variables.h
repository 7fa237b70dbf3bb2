// The variables of a manifest: which there are, what they may be, and what those that are not given are. Pure
// functions, safe from any thread.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

// "indexed-job", "jaxjob", "jobset", "trainjob".
const std::vector<std::string>& manifest_kinds();

// One that users may set, for help and documentation.
struct ManifestVariable {
  const char* name;
  const char* what;  // "a whole number", "a text"
  const char* help;
};
const std::vector<ManifestVariable>& manifest_variables();

struct VariablesOptions {
  std::string kind = "indexed-job";
  bool others = false;  // variables that are not in the table are kept, for a template of the user's
  std::function<std::string()> make_token = {};  // where no Secret and no token is given
};

// All variables that templates find. Throws Error naming the variable, its value and the remedy. REQUIRES: a known
// kind.
nlohmann::ordered_json complete_variables(const nlohmann::ordered_json& given, const VariablesOptions& options);

// `key=value`, where the value is JSON when it reads as such, else a text. Throws Error when there is no key.
void set_variable(nlohmann::ordered_json& variables, const std::string& assignment);

// A file's content. Throws Error, with the line, when it is no JSON object.
nlohmann::ordered_json parse_variables(const std::string& text, const std::string& source);

}  // namespace lockstep
