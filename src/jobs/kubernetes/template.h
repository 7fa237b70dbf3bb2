// A small part of Jinja's template language, enough for manifests; docs/reference/manifest-templates.md describes it. What is not part of
// it is an error, never copied as text, and so is a name that is not known. Pure functions, safe from any thread.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace lockstep {

// The text of a template that another one includes; none when there is no such template.
using TemplateFinder = std::function<std::optional<std::string>(const std::string& name)>;

// `name` stands in messages: `job.yaml.j2:12: there is no variable "hots_count"; did you mean "hosts_count"?`. Throws
// Error for whatever is wrong with the template or does not fit the variables, an object.
std::string render_template(const std::string& name, const std::string& text, const nlohmann::ordered_json& variables,
                            const TemplateFinder& find = {});

}  // namespace lockstep
