// RequestParser: takes the bytes of a connection and returns the requests in them. It bounds everything that a client
// chooses: 16 KiB and 100 headers before the body, and the size of the body. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "http/message.h"

namespace lockstep::http {

// What the client sent is not a request that can be answered; the connection cannot be used any more.
struct BadRequest : std::runtime_error {
  BadRequest(int code, const std::string& text) : std::runtime_error(text), status(code) {}
  int status;
};

class RequestParser {
 public:
  static constexpr size_t kMaxHeadBytes = 16384, kMaxHeaders = 100;

  explicit RequestParser(size_t max_body) : max_body_(max_body) {}

  void append(std::string_view bytes) { buffer_ += bytes; }
  // The next complete request. Throws BadRequest.
  std::optional<Request> next();

  // Whether a part of a request has arrived.
  bool has_begun() const { return head_ || !buffer_.empty(); }
  // Bytes of the body of this request, as far as they are known.
  size_t body_bytes() const { return head_ ? length_ + head_->body.size() : 0; }
  // Whether the client waits for "100 Continue" before it sends the body; true once for a request.
  bool should_continue();

 private:
  void parse_head(std::string_view text);
  bool read_request();
  bool read_chunks();
  std::string_view unread() const { return std::string_view(buffer_).substr(read_); }
  void check_body(size_t bytes) const;

  const size_t max_body_;
  std::string buffer_;
  size_t read_ = 0;              // bytes of the buffer, during next()
  std::optional<Request> head_;  // of the request whose body is being read
  size_t length_ = 0;
  bool is_chunked_ = false, last_chunk_ = false, waits_ = false;
};

}  // namespace lockstep::http
