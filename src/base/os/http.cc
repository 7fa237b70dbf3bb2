#include "base/os/http.h"

#include <fmt/format.h>

#include "lockstep/error.h"

#ifdef LOCKSTEP_WITH_CURL

#include <curl/curl.h>

#include <memory>
#include <mutex>
#include <string_view>

#include "base/check.h"

namespace lockstep {
namespace {

// One request and its connection.
class HttpRequest {
 public:
  // `protocols`: "https" or "http,https".
  HttpRequest(const std::string& url, const char* protocols) : curl_(new_handle(), curl_easy_cleanup) {
    if (!curl_) throw IoError("libcurl initialization failed; try again");
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_ERRORBUFFER, static_cast<char*>(reason_));
    set(CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075500
    set(CURLOPT_PROTOCOLS_STR, protocols);
    set(CURLOPT_REDIR_PROTOCOLS_STR, protocols);
#else
    const long allowed = CURLPROTO_HTTPS | (std::string_view(protocols) == "https" ? 0 : CURLPROTO_HTTP);
    set(CURLOPT_PROTOCOLS, allowed);
    set(CURLOPT_REDIR_PROTOCOLS, allowed);
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
    set(CURLOPT_QUICK_EXIT, 1L);  // otherwise a hanging name lookup delays the return beyond the deadline
#endif
    set(CURLOPT_USERAGENT, "lockstep");
  }
  HttpRequest(const HttpRequest&) = delete;
  HttpRequest& operator=(const HttpRequest&) = delete;

  template <class T>
  void set(CURLoption option, T value) {
    const CURLcode code = curl_easy_setopt(curl_.get(), option, value);
    LOCKSTEP_CHECK(code == CURLE_OK, "curl option {}: {}", static_cast<int>(option), curl_easy_strerror(code));
  }

  // Returns the reason of a failure; empty if there was a response.
  std::string perform() {
    const CURLcode code = curl_easy_perform(curl_.get());
    if (code == CURLE_OK) return "";
    return reason_[0] ? reason_ : curl_easy_strerror(code);
  }

  // Throws IoError unless the status of the response is in low ... high.
  void check_status(long low, long high) const {
    long status = 0;
    curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &status);
    if (status < low || status > high) throw IoError(fmt::format("the server responded with HTTP {}", status));
  }

 private:
  static CURL* new_handle() {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    return curl_easy_init();
  }

  const std::unique_ptr<CURL, void (*)(CURL*)> curl_;
  char reason_[CURL_ERROR_SIZE] = {};
};

struct HttpBody {
  const HttpGetOptions& options;
  std::vector<uint8_t> bytes = {};
  bool too_long = false;
};

size_t receive_body(char* bytes, size_t, size_t count, void* user) {
  auto& body = *static_cast<HttpBody*>(user);
  if (static_cast<int64_t>(body.bytes.size() + count) > body.options.max_bytes) {
    body.too_long = true;
    return 0;
  }
  body.bytes.insert(body.bytes.end(), bytes, bytes + count);
  return count;
}

size_t discard_body(char*, size_t, size_t count, void*) { return count; }

int report_progress(void* user, curl_off_t total, curl_off_t now, curl_off_t, curl_off_t) {
  const auto& body = *static_cast<const HttpBody*>(user);
  if (now > 0 && body.options.progress) body.options.progress(now, total);
  return 0;
}

}  // namespace

std::vector<uint8_t> http_get(const std::string& url, const HttpGetOptions& options) {
  HttpRequest request(url, options.allow_plain_http ? "http,https" : "https");
  HttpBody body{options};
  request.set(CURLOPT_FOLLOWLOCATION, 1L);
  request.set(CURLOPT_MAXREDIRS, 5L);
  request.set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout.count()));
  request.set(CURLOPT_LOW_SPEED_LIMIT, 1000L);
  request.set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_timeout.count()));
  request.set(CURLOPT_TIMEOUT, static_cast<long>(options.deadline.count()));
  request.set(CURLOPT_WRITEFUNCTION, receive_body);
  request.set(CURLOPT_WRITEDATA, &body);
  request.set(CURLOPT_NOPROGRESS, 0L);
  request.set(CURLOPT_XFERINFOFUNCTION, report_progress);
  request.set(CURLOPT_XFERINFODATA, &body);

  const std::string failure = request.perform();
  if (body.too_long)
    throw IoError(fmt::format("the response is longer than the maximum of {} bytes", options.max_bytes));
  if (!failure.empty()) throw IoError(failure);
  request.check_status(200, 200);
  return std::move(body.bytes);
}

void http_post_json(const std::string& url, const std::string& body, const HttpPostOptions& options) {
  HttpRequest request(url, "https");
  curl_slist* list = curl_slist_append(nullptr, "Content-Type: application/json");
  if (!options.bearer.empty()) list = curl_slist_append(list, ("Authorization: Bearer " + options.bearer).c_str());
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, curl_slist_free_all);
  request.set(CURLOPT_NOPROXY, "*");
  request.set(CURLOPT_TIMEOUT_MS, static_cast<long>(options.deadline.count()));
  if (!options.ca_file.empty()) request.set(CURLOPT_CAINFO, options.ca_file.c_str());
  request.set(CURLOPT_HTTPHEADER, headers.get());
  request.set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  request.set(CURLOPT_POSTFIELDS, body.c_str());
  request.set(CURLOPT_WRITEFUNCTION, discard_body);

  if (const std::string failure = request.perform(); !failure.empty()) throw IoError(failure);
  request.check_status(200, 299);
}

}  // namespace lockstep

#else

namespace lockstep {
namespace {

constexpr const char* kNoCurl = "this build has no libcurl; install libcurl4-openssl-dev and build again";

}  // namespace

std::vector<uint8_t> http_get(const std::string&, const HttpGetOptions&) { throw IoError(kNoCurl); }

void http_post_json(const std::string&, const std::string&, const HttpPostOptions&) { throw IoError(kNoCurl); }

}  // namespace lockstep

#endif
