// What a job needs beside itself in a cluster: the headless Service that its pods name as their subdomain, and the
// Secret of its token. Pure functions, safe from any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

// The objects that a JAXJob or Indexed Job, as the server gives it, refers to. They belong to it, so that they go when
// it goes. A Secret holds the token under the key that the job reads it from.
std::vector<nlohmann::ordered_json> companions_of(const nlohmann::ordered_json& job, const std::string& token);

}  // namespace lockstep
