// Reply: answers one request, from any thread, in the handler or later, whole or in pieces.
//
//   service.post("/text", [&](Request& request, Reply& reply) { queue.push(Job{prompt_of(request), std::move(reply)}); });
//   ...
//   job.reply.begin({.type = "text/plain"});            // by another thread
//   for (piece of the text) if (!job.reply.write(piece)) return;
//   job.reply.end();
//
// No function waits for the client. A Reply is used by one thread at a time. It may outlive the server.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "http/message.h"

namespace lockstep::http {

struct Exchange;

class Reply {
 public:
  // Bytes of a body in pieces that may wait for the client.
  static constexpr size_t kMaxUnsent = size_t{1} << 20;

  explicit Reply(std::shared_ptr<Exchange> exchange);
  // If there is no complete answer: answers with status 500, or cuts the body off.
  ~Reply();
  Reply(Reply&&) noexcept;
  Reply& operator=(Reply&&) noexcept;

  // Whether the request waits for this object to answer it.
  explicit operator bool() const { return exchange_ != nullptr; }
  // Whether the client is there, the server goes on, and no answer was sent for lateness. If not, an answer has no use.
  bool is_open() const;
  // Same, but also while the server stops: requests that have arrived are answered.
  bool has_client() const;

  // Answers the request. Afterwards, and after end() and fail(), the object is empty.
  void send(Response response);
  void send_error(int status, std::string_view text);

  // Sets status, type and headers of a body in pieces. They are sent with the first piece.
  void begin(Response head);
  // Sends a piece of the body. False: the client is gone or reads too slowly, or the server stops. REQUIRES: begin().
  bool write(std::string_view piece);
  void end();
  // What was to be answered cannot be completed. Before the first piece this is send_error(); then the body is cut off,
  // so that the client notices, and the reason is logged.
  void fail(int status, std::string_view reason);

  // From this time on, `late` is the answer if there is none.
  void set_deadline(std::chrono::steady_clock::time_point time, Response late);

 private:
  void finish(bool complete);

  std::shared_ptr<Exchange> exchange_;
};

}  // namespace lockstep::http
