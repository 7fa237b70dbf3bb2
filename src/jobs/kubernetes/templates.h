// The built-in templates: the files of deploy/kubernetes/templates/, compiled into the program. Safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// Pairs of file name and text, sorted by name.
const std::vector<std::pair<std::string, std::string>>& builtin_templates();

std::optional<std::string> find_builtin_template(const std::string& name);

}  // namespace lockstep
