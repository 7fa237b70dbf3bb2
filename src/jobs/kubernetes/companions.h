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

// Lets a job whose container has no LOCKSTEP_TOKEN read it from the Secret NAME-token. `present` is the same job as the
// server has it already, null where it has none: a job that runs without a token stays as it is. Returns the name of
// the Secret; empty: nothing was added. Variables of envFrom may hold a token, so nothing is added where there are
// some.
std::string add_token(nlohmann::ordered_json& job, const nlohmann::ordered_json& present);

// Whether the object belonged to an earlier job of the same kind and name, and will be removed with it.
bool belongs_to_earlier(const nlohmann::ordered_json& object, const nlohmann::ordered_json& job);

}  // namespace lockstep
