#include "data/download.h"

#include <fmt/format.h>

#include "lockstep/error.h"

#ifdef LOCKSTEP_WITH_CURL

#include <curl/curl.h>

#include <memory>
#include <mutex>

#include "base/check.h"

namespace lockstep::detail {
namespace {

struct DownloadState {
  const DownloadOptions& options;
  std::vector<uint8_t> body;
  bool too_long = false;
};

size_t on_body(char* bytes, size_t, size_t count, void* user) {
  auto& transfer = *static_cast<DownloadState*>(user);
  if (static_cast<int64_t>(transfer.body.size() + count) > transfer.options.max_bytes) {
    transfer.too_long = true;
    return 0;
  }
  transfer.body.insert(transfer.body.end(), bytes, bytes + count);
  return count;
}

int on_progress(void* user, curl_off_t total, curl_off_t now, curl_off_t, curl_off_t) {
  const auto& transfer = *static_cast<const DownloadState*>(user);
  if (now > 0 && transfer.options.progress) transfer.options.progress(now, total);
  return 0;
}

template <class T>
void set(CURL* curl, CURLoption option, T value) {
  const CURLcode code = curl_easy_setopt(curl, option, value);
  LOCKSTEP_CHECK(code == CURLE_OK, "curl option {}: {}", static_cast<int>(option), curl_easy_strerror(code));
}

}  // namespace

std::vector<uint8_t> download(const std::string& url, const DownloadOptions& options) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  const std::unique_ptr<CURL, void (*)(CURL*)> handle(curl_easy_init(), curl_easy_cleanup);
  CURL* curl = handle.get();
  if (!curl) throw IoError("libcurl initialization failed; try again");

  DownloadState transfer{options, {}, false};
  char reason[CURL_ERROR_SIZE] = {};
  set(curl, CURLOPT_URL, url.c_str());
  set(curl, CURLOPT_ERRORBUFFER, static_cast<char*>(reason));
  set(curl, CURLOPT_NOSIGNAL, 1L);
  set(curl, CURLOPT_FOLLOWLOCATION, 1L);
  set(curl, CURLOPT_MAXREDIRS, 5L);
#if LIBCURL_VERSION_NUM >= 0x075500
  set(curl, CURLOPT_PROTOCOLS_STR, options.allow_plain_http ? "http,https" : "https");
  set(curl, CURLOPT_REDIR_PROTOCOLS_STR, options.allow_plain_http ? "http,https" : "https");
#else
  const long protocols = CURLPROTO_HTTPS | (options.allow_plain_http ? CURLPROTO_HTTP : 0);
  set(curl, CURLOPT_PROTOCOLS, protocols);
  set(curl, CURLOPT_REDIR_PROTOCOLS, protocols);
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
  set(curl, CURLOPT_QUICK_EXIT, 1L);  // otherwise a hanging name lookup delays the return beyond the deadline
#endif
  set(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout.count()));
  set(curl, CURLOPT_LOW_SPEED_LIMIT, 1000L);
  set(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_timeout.count()));
  set(curl, CURLOPT_TIMEOUT, static_cast<long>(options.deadline.count()));
  set(curl, CURLOPT_USERAGENT, "lockstep");
  set(curl, CURLOPT_WRITEFUNCTION, on_body);
  set(curl, CURLOPT_WRITEDATA, &transfer);
  set(curl, CURLOPT_NOPROGRESS, 0L);
  set(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
  set(curl, CURLOPT_XFERINFODATA, &transfer);

  const CURLcode code = curl_easy_perform(curl);
  if (transfer.too_long)
    throw IoError(fmt::format("the response is longer than the maximum of {} bytes", options.max_bytes));
  if (code != CURLE_OK) throw IoError(reason[0] ? reason : curl_easy_strerror(code));
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  if (status != 200) throw IoError(fmt::format("the server responded with HTTP {}", status));
  return std::move(transfer.body);
}

}  // namespace lockstep::detail

#else

namespace lockstep::detail {

std::vector<uint8_t> download(const std::string&, const DownloadOptions&) {
  throw IoError("this build has no libcurl; install libcurl4-openssl-dev and build again");
}

}  // namespace lockstep::detail

#endif
