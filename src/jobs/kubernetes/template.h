// Renders templates in a subset of Jinja, described in docs/reference/manifest-templates.md. Syntax outside the subset
// and unknown names are errors. Pure functions, safe from any thread.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace lockstep {

// Returns the text of an included template; nullopt if it does not exist.
using TemplateFinder = std::function<std::optional<std::string>(const std::string& name)>;

// Throws Error for a mistake in the template or a variable of the wrong type. `name` begins the messages:
// `job.yaml.j2:12: unknown variable "hots_count"; did you mean "hosts_count"?`. REQUIRES: `variables` is an object.
std::string render_template(const std::string& name, const std::string& text, const nlohmann::ordered_json& variables,
                            const TemplateFinder& find = {});

}  // namespace lockstep
