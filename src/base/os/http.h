// HTTP requests by libcurl. Every wait has a deadline, and the size of responses is limited. Servers are authenticated
// by certificates (HTTPS). libcurl is loaded by the first request; without it, requests throw IoError. Safe from any
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

struct HttpGetOptions {
  int64_t max_bytes = 0;                                            // a longer response is an error
  std::chrono::milliseconds connect_timeout{3000};                  // for name lookup, connection and handshake
  std::chrono::seconds stall_timeout{10};                           // fails after this time below 1 KB/s
  std::chrono::seconds deadline{600};                               // for the complete response
  bool allow_plain_http = false;                                    // for tests with a local server
  std::function<void(int64_t bytes, int64_t total)> progress = {};  // total 0: unknown
};

// Returns the body of a 200 response. Follows redirects, and uses proxies of the environment. Throws IoError otherwise.
// The message has only the reason; the caller adds the URL.
std::vector<uint8_t> http_get(const std::string& url, const HttpGetOptions& options);

struct HttpPostOptions {
  std::string ca_file = {};                  // the only trusted CA certificates; empty: those of the system
  std::string bearer = {};                   // the token of the Authorization header; empty: none
  std::chrono::milliseconds deadline{5000};  // for the complete request
};

// Returns when the server has accepted the request (status 200 to 299). Does not use proxies of the environment. Throws
// IoError otherwise. The message has only the reason.
void http_post_json(const std::string& url, const std::string& body, const HttpPostOptions& options);

// "libcurl 7.88.1", which it loads; empty: there is none, or this build cannot use it.
std::string http_library();

}  // namespace lockstep
