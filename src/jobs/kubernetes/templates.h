// The templates that the program brings along, made of deploy/kubernetes/templates/ when it is built. Safe from any
// thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// File name and text, in the order of their names.
const std::vector<std::pair<std::string, std::string>>& builtin_templates();

std::optional<std::string> find_builtin_template(const std::string& name);

}  // namespace lockstep
