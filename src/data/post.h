// Sends JSON with an HTTPS POST request, using libcurl. The server is authenticated by a CA certificate. Every wait has
// a deadline. Safe from any thread.
#pragma once

#include <chrono>
#include <string>

namespace lockstep::detail {

struct PostOptions {
  std::string ca_file = {};                  // the only trusted CA certificates; empty: those of the system
  std::string bearer = {};                   // the token of the Authorization header; empty: none
  std::chrono::milliseconds deadline{5000};  // for the complete request
};

// Returns when the server has accepted the request (status 200 to 299). Throws IoError otherwise, and if this build has
// no libcurl. The message has only the reason. Does not use proxies of the environment.
void post_json(const std::string& url, const std::string& body, const PostOptions& options);

}  // namespace lockstep::detail
