#include "http/reply.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "base/printable.h"
#include "http/exchange.h"

namespace lockstep::http {

using Progress = Exchange::Progress;

Mailbox::Mailbox(Log log) : log_(std::move(log)), wake_(make_pipe(O_NONBLOCK)) {}

void Mailbox::wake() const { (void)!::write(wake_.writer.get(), "x", 1); }

void Mailbox::post(std::shared_ptr<Exchange> exchange) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;
    posted_.push_back(std::move(exchange));
    if (posted_.size() > 1) return;
  }
  wake();
}

std::vector<std::shared_ptr<Exchange>> Mailbox::take() {
  std::array<char, 256> ignored;
  while (::read(wake_.reader.get(), ignored.data(), ignored.size()) > 0) {
  }
  const std::lock_guard lock(mutex_);
  return std::exchange(posted_, {});
}

void Mailbox::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  posted_.clear();
}

void Mailbox::stop() {
  stopping_ = true;
  wake();
}

namespace {

// Reports news of an exchange once until the reading thread has taken them. REQUIRES: its mutex is held.
void post_once(const std::shared_ptr<Exchange>& exchange) {
  if (!std::exchange(exchange->is_posted, true)) exchange->mailbox->post(exchange);
}

}  // namespace

Reply::Reply(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
Reply::Reply(Reply&& other) noexcept : exchange_(std::move(other.exchange_)) {}

Reply& Reply::operator=(Reply&& other) noexcept {
  if (this == &other) return *this;
  if (exchange_) fail(500, "the request was given up");
  exchange_ = std::move(other.exchange_);
  return *this;
}

Reply::~Reply() {
  if (exchange_) fail(500, "the request was given up");
}

bool Reply::is_open() const { return has_client() && !exchange_->mailbox->is_stopping(); }

bool Reply::has_client() const {
  if (!exchange_) return false;
  const std::lock_guard lock(exchange_->mutex);
  return !exchange_->is_gone;
}

void Reply::send(Response response) {
  LOCKSTEP_CHECK(exchange_, "a request is answered twice");
  {
    const std::lock_guard lock(exchange_->mutex);
    LOCKSTEP_CHECK(exchange_->progress == Progress::none, "a request is answered twice");
    exchange_->head = std::move(response);
    exchange_->is_in_pieces = false;
  }
  finish(true);
}

void Reply::send_error(int status, std::string_view text) {
  Response response;
  response.set_error(status, text);
  send(std::move(response));
}

void Reply::begin(Response head) {
  const std::lock_guard lock(exchange_->mutex);
  exchange_->head = std::move(head);
  exchange_->is_in_pieces = true;
}

bool Reply::write(std::string_view piece) {
  if (exchange_->mailbox->is_stopping()) return false;
  const std::lock_guard lock(exchange_->mutex);
  LOCKSTEP_CHECK(exchange_->is_in_pieces, "write() before begin()");
  std::string& pieces = exchange_->pieces;
  if (!pieces.empty() && pieces.size() + piece.size() > kMaxUnsent) exchange_->is_gone = true;
  if (exchange_->is_gone) return false;
  pieces += piece;
  exchange_->progress = Progress::pieces;
  post_once(exchange_);
  return true;
}

void Reply::end() { finish(true); }

void Reply::finish(bool complete) {
  const std::shared_ptr<Exchange> exchange = std::move(exchange_);
  const std::lock_guard lock(exchange->mutex);
  exchange->progress = complete ? Progress::complete : Progress::cut;
  post_once(exchange);
}

void Reply::fail(int status, std::string_view reason) {
  {
    std::unique_lock lock(exchange_->mutex);
    if (exchange_->progress == Progress::none) {
      lock.unlock();
      return send_error(status, reason);
    }
    if (!exchange_->is_gone && !exchange_->mailbox->is_stopping())
      exchange_->mailbox->log(fmt::format("{} {}: the answer ended early: {}", printable(exchange_->request.method, 20),
                                          printable(exchange_->request.path, 200), reason));
  }
  finish(false);
}

void Reply::set_deadline(std::chrono::steady_clock::time_point time, Response late) {
  const std::lock_guard lock(exchange_->mutex);
  exchange_->late.emplace(time, std::move(late));
  post_once(exchange_);
}

}  // namespace lockstep::http
