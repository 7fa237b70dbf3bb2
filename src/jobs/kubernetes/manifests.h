// Renders the manifest of a job from a template and variables. Safe from any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

struct ManifestRequest {
  std::string kind = "indexed-job";
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // set by the user; see variables.h
  std::string template_file = {};  // replaces the built-in template; its folder is searched first for includes
};

// Returns YAML with one or more documents. Generates a token if the variables set neither token nor token_secret.
// Throws Error, and IoError if the template file cannot be read.
std::string render_manifest(const ManifestRequest& request);

}  // namespace lockstep
