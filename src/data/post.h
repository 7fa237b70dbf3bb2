// Sending JSON over HTTPS with libcurl, to a server that is believed because of one certificate. No wait without a
// deadline. Safe from any thread.
#pragma once

#include <chrono>
#include <string>

namespace lockstep::detail {

struct PostOptions {
  std::string ca_file = {};                  // empty: those of the system
  std::string bearer = {};                   // the token of the Authorization header; empty: none
  std::chrono::milliseconds deadline{5000};  // for all of it
};

// Returns when the server has taken it (a status of 200 to 299). Otherwise, also when this build has no libcurl, throws
// IoError with the reason alone. Proxies of the environment are not used.
void post_json(const std::string& url, const std::string& body, const PostOptions& options);

}  // namespace lockstep::detail
