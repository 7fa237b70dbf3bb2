#include "http/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace lockstep::http {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view reason_of(int status) {
  static const std::map<int, std::string_view> kReasons = {
      {200, "OK"},
      {303, "See Other"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {408, "Request Timeout"},
      {413, "Content Too Large"},
      {414, "URI Too Long"},
      {417, "Expectation Failed"},
      {421, "Misdirected Request"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
  };
  const auto found = kReasons.find(status);
  return found == kReasons.end() ? "Other" : found->second;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string Request::get_param_value(const std::string& name) const {
  const auto found = params.find(name);
  return found == params.end() ? "" : found->second;
}

bool Request::has_header(std::string_view name) const { return headers.contains(lower(name)); }

std::string Request::get_header_value(std::string_view name) const {
  const auto found = headers.find(lower(name));
  return found == headers.end() ? "" : found->second;
}

void Response::set_content(std::string_view text, std::string_view content_type) {
  body = text;
  type = content_type;
}

void Response::set_header(std::string_view name, std::string_view value) {
  for (const std::string_view text : {name, value})
    LOCKSTEP_CHECK(std::none_of(text.begin(), text.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }),
                   "a header contains a control character");
  headers.emplace_back(name, value);
}

void Response::set_redirect(std::string_view url, int code) {
  status = code;
  set_header("Location", url);
}

void Response::set_error(int code, std::string_view text) {
  status = code;
  set_content(nlohmann::json{{"error", text}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n",
              kJson);
}

void Response::set_busy(std::string_view text, double seconds) {
  set_error(503, text);
  set_header("Retry-After", std::to_string(static_cast<int>(std::clamp(std::ceil(seconds), 1.0, 3600.0))));
}

std::string to_bytes(const Response& response, const Headers& more, BodyEnd end, bool has_body, bool keep_alive) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_of(response.status));
  if (!response.type.empty()) out += fmt::format("Content-Type: {}\r\n", response.type);
  if (end == BodyEnd::length)
    out += fmt::format("Content-Length: {}\r\n", response.body.size());
  else if (end == BodyEnd::last_chunk)
    out += "Transfer-Encoding: chunked\r\n";
  for (const Headers* headers : {&response.headers, &more})
    for (const auto& [name, value] : *headers) out += fmt::format("{}: {}\r\n", name, value);
  out += keep_alive ? "\r\n" : "Connection: close\r\n\r\n";
  if (has_body && end == BodyEnd::length) out += response.body;
  return out;
}

std::string percent_decoded(std::string_view text, bool plus_is_space) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(16 * hex_digit(text[i + 1]) + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += plus_is_space && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

bool same_word(std::string_view a, std::string_view b) {
  const auto lower_case = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower_case(x) == lower_case(y); });
}

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    std::string_view one = list.substr(0, list.find(','));
    list.remove_prefix(std::min(one.size() + 1, list.size()));
    while (one.starts_with(' ') || one.starts_with('\t')) one.remove_prefix(1);
    while (one.ends_with(' ') || one.ends_with('\t')) one.remove_suffix(1);
    if (same_word(one, word)) return true;
  }
  return false;
}

}  // namespace lockstep::http
