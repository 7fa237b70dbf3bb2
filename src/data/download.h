// Downloads a file over HTTPS with libcurl. Every wait has a deadline, and the size of the response is limited. Safe
// from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::detail {

struct DownloadOptions {
  int64_t max_bytes = 0;                                            // a longer response is an error
  std::chrono::milliseconds connect_timeout{3000};                  // for name lookup, connection and handshake
  std::chrono::seconds stall_timeout{10};                           // fails after this time below 1 KB/s
  std::chrono::seconds deadline{600};                               // for the complete file
  bool allow_plain_http = false;                                    // for tests with a local server
  std::function<void(int64_t bytes, int64_t total)> progress = {};  // total 0: unknown
};

// Returns the body of a 200 response. Throws IoError otherwise, and if this build has no libcurl. The message has only
// the reason; the caller adds the URL.
std::vector<uint8_t> download(const std::string& url, const DownloadOptions& options);

}  // namespace lockstep::detail
