// Fetching a file over HTTPS with libcurl. No wait without a deadline, and no more bytes than asked for. Safe from any
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::detail {

struct DownloadOptions {
  int64_t max_bytes = 0;                                            // a longer answer is an error
  std::chrono::milliseconds connect_timeout{3000};                  // name, connection and handshake together
  std::chrono::seconds stall_timeout{10};                           // this long below 1 KB/s is an error
  std::chrono::seconds deadline{600};                               // for the whole file
  bool allow_plain_http = false;                                    // for tests against a server of their own
  std::function<void(int64_t bytes, int64_t total)> progress = {};  // total 0: the server did not say
};

// The body of a 200 answer. Otherwise, also when this build has no libcurl, throws IoError with the reason alone: the
// caller says what was being fetched.
std::vector<uint8_t> download(const std::string& url, const DownloadOptions& options);

}  // namespace lockstep::detail
