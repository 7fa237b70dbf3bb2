#include "data/post.h"

#include <fmt/format.h>

#include "lockstep/error.h"

#ifdef LOCKSTEP_WITH_CURL

#include <curl/curl.h>

#include <memory>
#include <mutex>

#include "base/check.h"

namespace lockstep::detail {
namespace {

size_t discard_body(char*, size_t, size_t count, void*) { return count; }

template <class T>
void set_option(CURL* curl, CURLoption option, T value) {
  const CURLcode code = curl_easy_setopt(curl, option, value);
  LOCKSTEP_CHECK(code == CURLE_OK, "curl option {}: {}", static_cast<int>(option), curl_easy_strerror(code));
}

}  // namespace

void post_json(const std::string& url, const std::string& body, const PostOptions& options) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  const std::unique_ptr<CURL, void (*)(CURL*)> handle(curl_easy_init(), curl_easy_cleanup);
  CURL* curl = handle.get();
  if (!curl) throw IoError("libcurl initialization failed");

  curl_slist* list = curl_slist_append(nullptr, "Content-Type: application/json");
  if (!options.bearer.empty()) list = curl_slist_append(list, ("Authorization: Bearer " + options.bearer).c_str());
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, curl_slist_free_all);
  char reason[CURL_ERROR_SIZE] = {};
  set_option(curl, CURLOPT_URL, url.c_str());
  set_option(curl, CURLOPT_ERRORBUFFER, static_cast<char*>(reason));
  set_option(curl, CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075500
  set_option(curl, CURLOPT_PROTOCOLS_STR, "https");
#else
  set_option(curl, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTPS));
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
  set_option(curl, CURLOPT_QUICK_EXIT, 1L);  // otherwise a hanging name lookup delays the return beyond the deadline
#endif
  set_option(curl, CURLOPT_NOPROXY, "*");
  set_option(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(options.deadline.count()));
  set_option(curl, CURLOPT_USERAGENT, "lockstep");
  if (!options.ca_file.empty()) set_option(curl, CURLOPT_CAINFO, options.ca_file.c_str());
  set_option(curl, CURLOPT_HTTPHEADER, headers.get());
  set_option(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  set_option(curl, CURLOPT_POSTFIELDS, body.c_str());
  set_option(curl, CURLOPT_WRITEFUNCTION, discard_body);

  const CURLcode code = curl_easy_perform(curl);
  if (code != CURLE_OK) throw IoError(reason[0] ? reason : curl_easy_strerror(code));
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  if (status < 200 || status > 299) throw IoError(fmt::format("the server responded with HTTP {}", status));
}

}  // namespace lockstep::detail

#else

namespace lockstep::detail {

void post_json(const std::string&, const std::string&, const PostOptions&) {
  throw IoError("this build has no libcurl; install libcurl4-openssl-dev and build again");
}

}  // namespace lockstep::detail

#endif
