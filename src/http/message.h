// Request and Response: the messages of HTTP/1.1, as values.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::http {

inline constexpr const char* kJson = "application/json";

struct Request {
  std::string method, path, body;                   // the path is decoded, and ends before '?'
  std::map<std::string, std::string> params = {};   // of the query; the first value of a name
  std::map<std::string, std::string> headers = {};  // names in lower case
  std::vector<std::string> matches = {};            // the path, and the groups of the route's pattern
  bool keep_alive = true;                           // the client sends further requests on this connection
  bool takes_chunks = true;                         // HTTP/1.1

  bool has_param(const std::string& name) const { return params.contains(name); }
  std::string get_param_value(const std::string& name) const;
  std::string get_header_value(std::string_view name) const;
};

struct Response {
  // Sends a piece of the body; false: the client is gone or too slow, or the server stops.
  using Write = std::function<bool(std::string_view piece)>;

  int status = 200;
  std::string body = {}, type = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Writes the body in pieces, instead of `body`. It occupies a thread of the server.
  std::function<void(const Write& write)> stream = {};

  void set_content(std::string_view text, std::string_view content_type);
  // REQUIRES: no control characters.
  void set_header(std::string_view name, std::string_view value);
  void set_redirect(std::string_view url, int code);
  // {"error": text}
  void set_error(int code, std::string_view text);
};

// The status line and the headers of a response, for all but a stream with its body.
std::string to_bytes(const Request& request, const Response& response, bool keep_alive);

// %XX and '+' of a query. Incomplete escapes stay as they are.
std::string percent_decoded(std::string_view text, bool plus_is_space);

}  // namespace lockstep::http
