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

bool same_word(std::string_view a, std::string_view lower_case) {
  return std::equal(a.begin(), a.end(), lower_case.begin(), lower_case.end(),
                    [](char x, char y) { return (x >= 'A' && x <= 'Z' ? x - 'A' + 'a' : x) == y; });
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
  const std::string encoding = request.get_header_value("transfer-encoding"),
                    length = request.get_header_value("content-length"), expect = request.get_header_value("expect");
  length_ = 0;
  is_chunked_ = !encoding.empty();
  if (is_chunked_ && !length.empty()) throw BadRequest(400, "the request has a Content-Length and a Transfer-Encoding");
  if (is_chunked_ && !same_word(encoding, "chunked"))
    throw BadRequest(501, "the only supported Transfer-Encoding is chunked");
  if (!length.empty()) length_ = number_of(length, 10, "Content-Length");
  check_body(length_);
  waits_ = same_word(expect, "100-continue") && (is_chunked_ || length_ > 0);
  if (same_word(request.get_header_value("connection"), "close")) request.keep_alive = false;
  head_ = std::move(request);
}

// Whether all chunks have arrived.
bool RequestParser::read_chunks() {
  for (;;) {
    const std::string_view rest = unread();
    if (length_ > 2) {  // inside of a chunk
      const size_t bytes = std::min(length_ - 2, rest.size());
      head_->body.append(rest.substr(0, bytes));
      read_ += bytes;
      length_ -= bytes;
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
      const auto size = number_of(rest.substr(0, std::min(end, rest.find(';'))), 16, "the size of a chunk");
      check_body(size);
      check_body(size + head_->body.size());
      length_ = size + 2;
      last_chunk_ = size == 0;
      read_ += end + 2;
    }
  }
}

std::optional<Request> RequestParser::next() {
  const bool is_complete = read_request();
  buffer_.erase(0, read_);
  read_ = 0;
  if (!is_complete) return std::nullopt;
  Request out = std::move(*head_);
  head_.reset();
  return out;
}

bool RequestParser::read_request() {
  if (!head_) {
    while (unread().starts_with("\r\n")) read_ += 2;  // allowed between requests
    const std::string_view rest = unread();
    const size_t end = rest.substr(0, kMaxHeadBytes).find("\r\n\r\n");
    if (end == rest.npos) {
      if (rest.size() >= kMaxHeadBytes)
        throw BadRequest(431, fmt::format("the headers are longer than {} bytes", kMaxHeadBytes));
      return false;
    }
    read_ += end + 4;
    parse_head(rest.substr(0, end));
  }
  if (is_chunked_) return read_chunks();
  if (unread().size() < length_) return false;
  head_->body = unread().substr(0, length_);
  read_ += length_;
  return true;
}

bool RequestParser::should_continue() { return head_ && std::exchange(waits_, false); }

}  // namespace lockstep::http
