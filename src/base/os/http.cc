#include "base/os/http.h"

#include <fmt/format.h>

#include "lockstep/error.h"

#ifdef LOCKSTEP_WITH_CURL

#include <curl/curl.h>
#include <dlfcn.h>

#include <memory>
#include <string_view>
#include <type_traits>

#include "base/check.h"

namespace lockstep {
namespace {

// The functions of libcurl that are used. The program loads it at the first request: most runs make none, and with it
// come thirty other libraries.
struct Curl {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_version_info) version_info = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
  std::string failure = {};  // why it cannot be used; empty: it can
};

Curl load_curl() {
  Curl out;
  void* handle = nullptr;
  // Debian has it with OpenSSL and with GnuTLS. The functions are the same.
  for (const char* const name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle) break;
    if (out.failure.empty()) out.failure = ::dlerror();
  }
  if (!handle) {
    out.failure = fmt::format("cannot load libcurl ({}); install the package libcurl4", out.failure);
    return out;
  }
  out.failure.clear();
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, symbol));
    if (!function) out.failure = fmt::format("libcurl lacks {}: it is too old; install a newer one", symbol);
  };
  find(out.global_init, "curl_global_init");
  find(out.version_info, "curl_version_info");
  find(out.easy_init, "curl_easy_init");
  find(out.easy_cleanup, "curl_easy_cleanup");
  find(out.easy_setopt, "curl_easy_setopt");
  find(out.easy_perform, "curl_easy_perform");
  find(out.easy_getinfo, "curl_easy_getinfo");
  find(out.easy_strerror, "curl_easy_strerror");
  find(out.slist_append, "curl_slist_append");
  find(out.slist_free_all, "curl_slist_free_all");
  if (out.failure.empty() && out.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    out.failure = "libcurl initialization failed; try again";
  return out;
}

const Curl& loaded_curl() {
  static const auto* const loaded = new Curl(load_curl());
  return *loaded;
}

const Curl& curl_library() {
  const Curl& curl = loaded_curl();
  if (!curl.failure.empty()) throw IoError(curl.failure);
  return curl;
}

// One request and its connection.
class HttpRequest {
 public:
  // `protocols`: "https" or "http,https".
  HttpRequest(const std::string& url, const char* protocols)
      : library_(curl_library()), curl_(library_.easy_init(), library_.easy_cleanup) {
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
    const CURLcode code = library_.easy_setopt(curl_.get(), option, value);
    LOCKSTEP_CHECK(code == CURLE_OK, "curl option {}: {}", static_cast<int>(option), library_.easy_strerror(code));
  }

  // Returns the reason of a failure; empty if there was a response.
  std::string perform() {
    const CURLcode code = library_.easy_perform(curl_.get());
    if (code == CURLE_OK) return "";
    return reason_[0] ? reason_ : library_.easy_strerror(code);
  }

  // Throws IoError unless the status of the response is in low ... high.
  void check_status(long low, long high) const {
    long status = 0;
    library_.easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &status);
    if (status < low || status > high) throw IoError(fmt::format("the server responded with HTTP {}", status));
  }

 private:
  const Curl& library_;
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
  const Curl& curl = curl_library();
  curl_slist* list = curl.slist_append(nullptr, "Content-Type: application/json");
  if (!options.bearer.empty()) list = curl.slist_append(list, ("Authorization: Bearer " + options.bearer).c_str());
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, curl.slist_free_all);
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

std::string http_library() {
  const Curl& curl = loaded_curl();
  return curl.failure.empty() ? fmt::format("libcurl {}", curl.version_info(CURLVERSION_NOW)->version) : "";
}

}  // namespace lockstep

#else

namespace lockstep {
namespace {

constexpr const char* kNoCurl = "this build has no libcurl; install libcurl4-openssl-dev and build again";

}  // namespace

std::vector<uint8_t> http_get(const std::string&, const HttpGetOptions&) { throw IoError(kNoCurl); }

void http_post_json(const std::string&, const std::string&, const HttpPostOptions&) { throw IoError(kNoCurl); }

std::string http_library() { return ""; }

}  // namespace lockstep

#endif
