// A job's manifest from a template and variables. Safe from any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

struct ManifestRequest {
  std::string kind = "indexed-job";
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // as given: see variables.h
  std::string template_file = {};  // instead of the kind's own; what it includes is looked for beside it first
};

// YAML, one or several documents. A token is made where the variables name neither one nor a Secret. Throws Error, and
// IoError when the file cannot be read.
std::string render_manifest(const ManifestRequest& request);

}  // namespace lockstep
