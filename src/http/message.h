// Request and Response: the messages of HTTP/1.1, as values.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::http {

inline constexpr const char* kJson = "application/json";

struct Route;  // of a Server

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method, path, body;                   // the path is decoded, and ends before '?'
  std::map<std::string, std::string> params = {};   // of the query; the first value of a name
  std::map<std::string, std::string> headers = {};  // names in lower case
  std::vector<std::string> matches = {};            // the path, and the groups of the route's pattern
  const Route* route = nullptr;                     // nullptr: none
  bool keep_alive = true;                           // the client sends further requests on this connection
  bool takes_chunks = true;                         // HTTP/1.1

  bool has_param(const std::string& name) const { return params.contains(name); }
  std::string get_param_value(const std::string& name) const;
  bool has_header(std::string_view name) const;
  std::string get_header_value(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string body = {}, type = {};
  Headers headers = {};

  void set_content(std::string_view text, std::string_view content_type);
  // REQUIRES: no control characters.
  void set_header(std::string_view name, std::string_view value);
  void set_redirect(std::string_view url, int code);
  // {"error": text}
  void set_error(int code, std::string_view text);
  // 503: the client may send the same request again after this time, at least a second.
  void set_busy(std::string_view text, double seconds = 1);
};

// How the end of a body is marked.
enum class BodyEnd { length, last_chunk, close };

// The status line and the headers of a response, and with BodyEnd::length its body. `more`: further headers. `has_body`:
// false after HEAD.
std::string to_bytes(const Response& response, const Headers& more, BodyEnd end, bool has_body, bool keep_alive);

// %XX and '+' of a query. Incomplete escapes stay as they are.
std::string percent_decoded(std::string_view text, bool plus_is_space);

// Whether the texts are equal without regard to the case of ASCII letters.
bool same_word(std::string_view a, std::string_view b);

// Whether a list of words, separated by commas, contains this one.
bool has_word(std::string_view list, std::string_view word);

}  // namespace lockstep::http
