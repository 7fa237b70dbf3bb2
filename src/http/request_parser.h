// RequestParser: takes the bytes of a connection and returns the requests in them, each in two steps: when its headers
// have arrived, and when its body has. It bounds everything that a client chooses: 16 KiB and 100 headers before the
// body, and the size of the body. Used by one thread at a time.
#pragma once

#include <cstddef>
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

  void append(std::string_view bytes) { buffer_ += bytes; }

  // more: further bytes are needed. head: the headers of request() have arrived; returned once for each request.
  // complete: so has its body; take() it.
  enum class Step { more, head, complete };
  // Reads on. Throws BadRequest.
  Step read();

  // The request whose headers have arrived. REQUIRES: has_head().
  Request& request() { return request_; }
  bool has_head() const { return place_ != Place::head; }
  // Bounds the body of this request. Throws BadRequest (413) here or in read() if it is longer. REQUIRES: has_head().
  void set_max_body(size_t bytes);
  // Whether the client sends a body with this request. REQUIRES: has_head().
  bool has_body() const { return is_chunked_ || length_ > 0; }
  // Ends the request, and returns it. REQUIRES: complete, or no body.
  Request take();

  // Whether a part of a request has arrived.
  bool has_begun() const { return has_head() || !buffer_.empty(); }
  // Bytes of the body of this request, as far as they are known.
  size_t body_bytes() const { return has_head() ? length_ + request_.body.size() : 0; }
  // Whether the client waits for "100 Continue" before it sends the body; true once for a request.
  bool should_continue();

 private:
  enum class Place { head, body, complete };

  bool read_head();
  void parse_head(std::string_view text);
  bool read_body();
  bool read_chunks();
  void append_body(std::string_view bytes);
  std::string_view unread() const { return std::string_view(buffer_).substr(read_); }
  void check_body(size_t bytes) const;

  std::string buffer_;
  size_t read_ = 0;      // bytes of the buffer, during read()
  size_t searched_ = 0;  // bytes of the buffer without the end of the headers
  Place place_ = Place::head;
  Request request_ = {};
  size_t length_ = 0;  // bytes that are missing: of the body, or of a chunk and the line end behind it
  size_t max_body_ = 0;
  bool is_chunked_ = false, last_chunk_ = false, waits_ = false;
};

}  // namespace lockstep::http
