#include "jobs/kubernetes/templates.h"

namespace lockstep {

const std::vector<std::pair<std::string, std::string>>& builtin_templates() {
  static const std::vector<std::pair<std::string, std::string>> all = {
#include "jobs/kubernetes/templates.inc"
  };
  return all;
}

std::optional<std::string> find_builtin_template(const std::string& name) {
  for (const auto& [each, text] : builtin_templates())
    if (each == name) return text;
  return std::nullopt;
}

}  // namespace lockstep
