#include "http/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

namespace lockstep::http {
namespace {

constexpr size_t kMaxChunkLine = 1024;

bool is_token(std::string_view text) {
  constexpr std::string_view kOther = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || kOther.find(c) != kOther.npos;
  });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool has_control_character(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return (c >= 0 && c < ' ' && c != '\t') || c == 127; });
}

void set_target(Request& request, std::string_view target) {
  const size_t end = std::min(target.find('?'), target.size());
  request.path = percent_decoded(target.substr(0, end), false);
  for (std::string_view query = target.substr(std::min(end + 1, target.size())); !query.empty();) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(part.size() + 1, query.size()));
    const size_t equal = std::min(part.find('='), part.size());
    if (!part.empty())
      request.params.emplace(percent_decoded(part.substr(0, equal), true),
                             percent_decoded(part.substr(std::min(equal + 1, part.size())), true));
  }
}

void set_request_line(Request& request, std::string_view line) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || first == last) throw BadRequest(400, "the request line has not three words");
  const std::string_view target = line.substr(first + 1, last - first - 1), version = line.substr(last + 1);
  request.method = line.substr(0, first);
  if (!is_token(request.method) || !target.starts_with('/') || target.find(' ') != target.npos ||
      has_control_character(target))
    throw BadRequest(400, "the request line is not METHOD /PATH HTTP/1.1");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") throw BadRequest(505, "the version of HTTP is not 1.0 or 1.1");
  request.takes_chunks = request.keep_alive = version == "HTTP/1.1";
  set_target(request, target);
}

void add_header(Request& request, std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == line.npos || !is_token(line.substr(0, colon)) || has_control_character(line))
    throw BadRequest(400, "a header is not NAME: VALUE");
  std::string name(line.substr(0, colon));
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  const auto [at, is_new] = request.headers.emplace(name, trimmed(line.substr(colon + 1)));
  if (is_new) return;
  if (name == "content-length" || name == "transfer-encoding" || name == "host" || name == "authorization")
    throw BadRequest(400, fmt::format("the header {} is given twice", name));
  at->second.append(name == "cookie" ? "; " : ", ").append(trimmed(line.substr(colon + 1)));
}

uint64_t number_of(std::string_view text, int base, const char* what) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error == std::errc::result_out_of_range) throw BadRequest(413, fmt::format("{} is too large", what));
  if (error != std::errc() || end != text.data() + text.size())
    throw BadRequest(400, fmt::format("{} is not a number", what));
  return value;
}

}  // namespace

void RequestParser::check_body(size_t bytes) const {
  if (bytes > max_body_) throw BadRequest(413, fmt::format("the body is longer than {} bytes", max_body_));
}

void RequestParser::set_max_body(size_t bytes) {
  max_body_ = bytes;
  check_body(length_);
}

// Decides how the body ends. What another server could understand differently is refused.
void RequestParser::parse_head(std::string_view text) {
  Request request;
  const std::string_view first = text.substr(0, text.find("\r\n"));
  set_request_line(request, first);
  size_t count = 0;
  for (text.remove_prefix(std::min(first.size() + 2, text.size())); !text.empty();) {
    const std::string_view line = text.substr(0, text.find("\r\n"));
    text.remove_prefix(std::min(line.size() + 2, text.size()));
    if (++count > kMaxHeaders) throw BadRequest(431, fmt::format("the request has more than {} headers", kMaxHeaders));
    add_header(request, line);
  }
  is_chunked_ = request.has_header("transfer-encoding");
  length_ = 0;
  if (is_chunked_) {
    if (request.has_header("content-length"))
      throw BadRequest(400, "the request has a Content-Length and a Transfer-Encoding");
    if (!request.takes_chunks) throw BadRequest(400, "HTTP/1.0 has no Transfer-Encoding");
    if (!same_word(request.get_header_value("transfer-encoding"), "chunked"))
      throw BadRequest(501, "the only supported Transfer-Encoding is chunked");
  } else if (request.has_header("content-length")) {
    length_ = number_of(request.get_header_value("content-length"), 10, "Content-Length");
  }
  if (request.has_header("expect") && !same_word(request.get_header_value("expect"), "100-continue"))
    throw BadRequest(417, "the only supported Expect is 100-continue");
  waits_ = request.has_header("expect") && (is_chunked_ || length_ > 0);
  last_chunk_ = false;
  if (has_word(request.get_header_value("connection"), "close")) request.keep_alive = false;
  request_ = std::move(request);
}

// Whether the headers have arrived.
bool RequestParser::read_head() {
  while (unread().starts_with("\r\n")) read_ += 2;  // allowed between requests
  const std::string_view rest = unread();
  const size_t end = rest.substr(0, kMaxHeadBytes).find("\r\n\r\n", searched_);
  if (end == rest.npos) {
    if (rest.size() >= kMaxHeadBytes)
      throw BadRequest(431, fmt::format("the headers are longer than {} bytes", kMaxHeadBytes));
    searched_ = rest.size() - std::min<size_t>(rest.size(), 3);
    return false;
  }
  searched_ = 0;
  read_ += end + 4;
  parse_head(rest.substr(0, end));
  return true;
}

// The memory grows with what has arrived, not with what the client announces.
void RequestParser::append_body(std::string_view bytes) {
  std::string& body = request_.body;
  if (body.size() + bytes.size() > body.capacity())
    body.reserve(std::min(std::max(2 * body.size(), body.size() + bytes.size()), max_body_));
  body += bytes;
  read_ += bytes.size();
  length_ -= bytes.size();
}

// Whether all chunks have arrived.
bool RequestParser::read_chunks() {
  for (;;) {
    const std::string_view rest = unread();
    if (length_ > 2) {  // inside of a chunk
      append_body(rest.substr(0, length_ - 2));
      if (length_ > 2) return false;
    } else if (length_ > 0) {  // before the line end behind a chunk
      if (rest.size() < 2) return false;
      if (!rest.starts_with("\r\n")) throw BadRequest(400, "a chunk is longer than it declares");
      read_ += 2;
      length_ = 0;
      if (last_chunk_) return true;
    } else {
      const size_t end = rest.substr(0, kMaxChunkLine).find("\r\n");
      if (end == rest.npos) {
        if (rest.size() >= kMaxChunkLine) throw BadRequest(400, "the line before a chunk is too long");
        return false;
      }
      const std::string_view line = rest.substr(0, end);
      if (has_control_character(line)) throw BadRequest(400, "the line before a chunk has a control character");
      const auto size = number_of(line.substr(0, line.find(';')), 16, "the size of a chunk");
      check_body(size);
      check_body(size + request_.body.size());
      length_ = size + 2;
      last_chunk_ = size == 0;
      read_ += end + 2;
    }
  }
}

// Whether the body has arrived.
bool RequestParser::read_body() {
  if (is_chunked_) return read_chunks();
  append_body(unread().substr(0, length_));
  return length_ == 0;
}

RequestParser::Step RequestParser::read() {
  const Place before = place_;
  if (place_ == Place::head && read_head()) place_ = Place::body;
  if (before == Place::body && read_body()) place_ = Place::complete;
  buffer_.erase(0, read_);
  read_ = 0;
  if (buffer_.empty()) buffer_ = {};  // connections that wait hold no memory
  if (place_ == Place::complete) return Step::complete;
  return before == Place::head && place_ == Place::body ? Step::head : Step::more;
}

Request RequestParser::take() {
  place_ = Place::head;
  return std::exchange(request_, {});
}

bool RequestParser::should_continue() { return has_head() && std::exchange(waits_, false); }

}  // namespace lockstep::http
