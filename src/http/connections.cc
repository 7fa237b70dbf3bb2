#include "http/connections.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "base/start_thread.h"

namespace lockstep::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kMaxDrain{2000};

}  // namespace

Connections::Connections(Descriptor listener, const Limits& limits, Service& service)
    : listener_(std::move(listener)),
      limits_(limits),
      service_(service),
      mailbox_(std::make_shared<Mailbox>([&service](const std::string& text) { service.log(text); })) {}

void Connections::stop() { mailbox_->stop(); }

// `bytes`: what the slowest client takes time for.
Clock::time_point Connections::deadline_of(Clock::time_point begin, size_t bytes) const {
  const std::chrono::duration<double> time(static_cast<double>(bytes) / static_cast<double>(limits_.slowest_client));
  return begin + limits_.timeout + std::chrono::duration_cast<Clock::duration>(time);
}

void Connections::run() {
  std::vector<std::thread> threads;
  for (int i = 0; i < limits_.threads; ++i) threads.push_back(start_thread([this] { work(); }));
  const auto in_progress = [](const Connection& each) {
    return each.phase == Phase::waiting || each.phase == Phase::writing;
  };
  while (!is_stopping() || std::any_of(all_.begin(), all_.end(), in_progress)) {
    wait_for_events();
    handle_events();
    take_news();
    remove_closed();
  }
  mailbox_->close();
  all_.clear();
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void Connections::work() {
  for (;;) {
    std::shared_ptr<Exchange> exchange;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ended_ || !queue_.empty(); });
      if (queue_.empty()) return;
      exchange = std::move(queue_.front());
      queue_.pop_front();
    }
    service_.answer(exchange);
  }
}

// Fills events_: the mailbox, the listener, and the connections in the order of the list.
void Connections::wait_for_events() {
  const auto now = Clock::now();
  auto until = now + seconds(60);
  const bool accepts = !is_stopping() && now >= accept_again_;
  if (!is_stopping() && !accepts) until = std::min(until, accept_again_);
  events_.assign(1, {mailbox_->fd(), POLLIN, 0});
  events_.push_back({accepts ? listener_.get() : -1, POLLIN, 0});
  served_ = 0;
  extra_ = 0;
  for (const Connection& each : all_) {
    const bool waits = each.phase == Phase::waiting;
    const short wanted = each.phase == Phase::writing ? POLLOUT : waits ? POLLRDHUP : POLLIN;
    events_.push_back({waits && each.is_half_closed ? -1 : each.socket.get(), wanted, 0});
    until = std::min(until, each.has_unread && !waits ? now : each.deadline);
    if (each.was_served) ++served_;
    if (each.is_extra) ++extra_;
  }
  const auto left = std::chrono::ceil<milliseconds>(until - now).count();
  if (::poll(events_.data(), events_.size(), static_cast<int>(std::max<int64_t>(left, 0))) < 0)
    for (pollfd& each : events_) each.revents = 0;
}

void Connections::handle_events() {
  size_t at = 2;
  const auto now = Clock::now();
  for (Connection& each : all_) {
    const short events = events_[at++].revents;
    try {
      handle(each, events);
      if (!each.is_closed && now >= each.deadline) expire(each);
    } catch (const std::exception& error) {  // such as no memory for the request
      service_.log(fmt::format("a connection was closed: {}", error.what()));
      close(each);
    }
  }
  if (events_[1].revents != 0 && !is_stopping()) accept_some();
}

void Connections::handle(Connection& connection, short events) {
  switch (connection.phase) {
    case Phase::waiting:
      if (events != 0) leave(connection);
      if ((events & (POLLERR | POLLHUP)) != 0 || (is_stopping() && connection.is_half_closed)) close(connection);
      break;
    case Phase::writing:
      if (events != 0) write(connection);
      break;
    case Phase::draining:
      if (events != 0) discard(connection);
      if (is_stopping()) close(connection);
      break;
    case Phase::reading:
      if (is_stopping())
        close(connection);
      else if (events != 0)
        read(connection);
      else if (connection.has_unread)
        read_requests(connection);
  }
}

// Answers that others have given.
void Connections::take_news() {
  for (const std::shared_ptr<Exchange>& each : mailbox_->take()) {
    if (each->connection == nullptr) continue;
    Connection& connection = *each->connection;
    try {
      pump(connection);
    } catch (const std::exception& error) {
      service_.log(fmt::format("a connection was closed: {}", error.what()));
      close(connection);
    }
  }
}

void Connections::remove_closed() {
  all_.remove_if([](const Connection& each) { return each.is_closed; });
  peers_.forget_gone();
}

void Connections::begin_reading(Connection& connection) {
  connection.phase = Phase::reading;
  connection.since = Clock::now();
  connection.deadline = deadline_of(connection.since, 0);
  connection.has_unread = connection.parser.has_begun();
  connection.is_complete = connection.is_cut = false;
}

void Connections::read(Connection& connection) {
  std::array<char, 65536> bytes;
  const ssize_t count = ::recv(connection.socket.get(), bytes.data(), bytes.size(), 0);
  if (count <= 0) {
    if (count == 0 || !would_block(errno)) close(connection);
    return;
  }
  if (!connection.parser.has_begun()) connection.since = Clock::now();
  connection.parser.append({bytes.data(), static_cast<size_t>(count)});
  read_requests(connection);
}

void Connections::read_requests(Connection& connection) {
  connection.has_unread = false;
  try {
    for (;;) {
      switch (connection.parser.read()) {
        case RequestParser::Step::head:
          if (!judge(connection)) return;
          break;
        case RequestParser::Step::complete:
          if (account_body(connection)) start(connection);
          return;
        case RequestParser::Step::more:
          if (account_body(connection))
            connection.deadline = deadline_of(connection.since, connection.parser.body_bytes());
          return;
      }
    }
  } catch (const BadRequest& error) {
    refuse_bad(connection, error);
  }
}

// Returns whether the body is to be read.
bool Connections::judge(Connection& connection) {
  RequestParser& parser = connection.parser;
  const Service::Verdict verdict = service_.judge(parser.request());
  if (verdict.refusal) {
    service_.count(parser.request(), verdict.refusal->status, {});
    refuse(connection, *verdict.refusal, parser.has_body());
    return false;
  }
  connection.is_quick = verdict.is_quick;
  parser.set_max_body(verdict.max_body);
  constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  if (parser.should_continue())
    (void)!::send(connection.socket.get(), kContinue.data(), kContinue.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return true;
}

// Counts the bytes of a body that have arrived. While all bodies have too many, the one that arrives most slowly is
// refused. Returns false if it is this one.
bool Connections::account_body(Connection& connection) {
  const size_t held = connection.parser.has_head() ? connection.parser.request().body.size() : 0;
  bodies_ += held - connection.body_held;
  connection.body_held = held;
  while (bodies_ > limits_.bodies) {
    const auto now = Clock::now();
    const auto rate = [now](const Connection& each) {
      return static_cast<double>(each.body_held) /
             static_cast<double>(std::max<int64_t>((now - each.since).count(), 1));
    };
    Connection* slowest = &connection;
    for (Connection& each : all_)
      if (each.phase == Phase::reading && each.body_held > 0 && rate(each) < rate(*slowest)) slowest = &each;
    Response response;
    response.set_busy("too many bytes of requests are in memory; try again later");
    service_.count(slowest->parser.request(), response.status, {});
    refuse(*slowest, response, true);
    if (slowest == &connection) return false;
  }
  return true;
}

void Connections::release_body(Connection& connection) { bodies_ -= std::exchange(connection.body_held, 0); }

// The request is complete.
void Connections::start(Connection& connection) {
  connection.phase = Phase::waiting;
  connection.since = Clock::now();
  connection.deadline = Clock::time_point::max();
  connection.exchange = std::make_shared<Exchange>(mailbox_, connection.parser.take());
  connection.exchange->connection = &connection;
  if (connection.is_quick) {
    service_.answer(connection.exchange);
    return pump(connection);
  }
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(connection.exchange);
  }
  changed_.notify_one();
}

// Answers before a handler is called. `closes`: what follows on the connection is not a request.
void Connections::refuse(Connection& connection, const Response& response, bool closes) {
  bool has_body = true;
  if (connection.parser.has_head()) {
    const Request& request = connection.parser.request();
    has_body = request.method != "HEAD";
    closes = closes || !request.keep_alive;
    connection.parser.take();
  }
  if (closes) connection.parser = {};
  release_body(connection);
  connection.is_last = closes || is_stopping();
  connection.is_complete = true;
  connection.out = to_bytes(response, limits_.headers, BodyEnd::length, has_body, !connection.is_last);
  begin_writing(connection);
}

void Connections::refuse_bad(Connection& connection, const BadRequest& error) {
  Response response;
  response.set_error(error.status, error.what());
  if (connection.parser.has_head()) service_.count(connection.parser.request(), error.status, {});
  refuse(connection, response, true);
}

// Sends what there is of the answer.
void Connections::pump(Connection& connection) {
  if (connection.phase != Phase::waiting) return;  // called again when `out` is sent
  Exchange& exchange = *connection.exchange;
  {
    const std::lock_guard lock(exchange.mutex);
    exchange.is_posted = false;
    if (exchange.late && !connection.has_head) connection.deadline = exchange.late->first;
    using Progress = Exchange::Progress;
    if (exchange.progress == Progress::none) return;
    if (exchange.progress == Progress::pieces && connection.has_head && exchange.pieces.empty()) return;
    if (!connection.has_head) add_head(connection, exchange.head, exchange.is_in_pieces);
    const bool has_body = exchange.request.method != "HEAD";
    const bool in_chunks = has_body && connection.end == BodyEnd::last_chunk;
    const std::string pieces = std::exchange(exchange.pieces, {});
    if (in_chunks && !pieces.empty())
      connection.out += fmt::format("{:x}\r\n{}\r\n", pieces.size(), pieces);
    else if (has_body)
      connection.out += pieces;
    connection.is_complete = exchange.progress == Progress::complete;
    connection.is_cut = exchange.progress == Progress::cut;
    if (connection.is_complete && in_chunks) connection.out += "0\r\n\r\n";
  }
  if (connection.is_complete || connection.is_cut)
    service_.count(exchange.request, exchange.head.status, Clock::now() - exchange.begun);
  begin_writing(connection);
}

// Clients are asked to close their connections before idle ones have to be closed under a request.
void Connections::add_head(Connection& connection, const Response& head, bool is_in_pieces) {
  const Request& request = connection.exchange->request;
  const bool is_crowded = 8 * served_ > 7 * int64_t{limits_.connections};
  connection.end = !is_in_pieces ? BodyEnd::length : request.takes_chunks ? BodyEnd::last_chunk : BodyEnd::close;
  connection.is_last = !request.keep_alive || connection.end == BodyEnd::close || is_crowded || is_stopping();
  connection.out = to_bytes(head, limits_.headers, connection.end, request.method != "HEAD", !connection.is_last);
  connection.has_head = true;
}

void Connections::begin_writing(Connection& connection) {
  connection.phase = Phase::writing;
  connection.since = Clock::now();
  connection.sent = 0;
  connection.deadline = deadline_of(connection.since, connection.out.size());
  write(connection);
}

void Connections::write(Connection& connection) {
  std::string& out = connection.out;
  while (connection.sent < out.size()) {
    const ssize_t count = ::send(connection.socket.get(), out.data() + connection.sent, out.size() - connection.sent,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) {
      if (!would_block(errno)) close(connection);
      return;
    }
    connection.sent += static_cast<size_t>(count);
    connection.since = Clock::now();
  }
  out = {};
  if (connection.is_complete || connection.is_cut) return finish(connection);
  connection.phase = Phase::waiting;
  connection.deadline = Clock::time_point::max();
  mailbox_->post(connection.exchange);  // there may be further pieces
}

// The answer is sent.
void Connections::finish(Connection& connection) {
  release_body(connection);
  if (connection.exchange) {
    connection.exchange->connection = nullptr;
    connection.exchange.reset();
    connection.was_served = true;
  }
  connection.has_head = false;
  if (connection.is_cut && connection.end == BodyEnd::close) {
    const linger reset{1, 0};  // the end of the connection would look like that of the body
    (void)::setsockopt(connection.socket.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(connection);
  } else if (connection.is_last || connection.is_cut) {
    drain(connection);
  } else {
    begin_reading(connection);
  }
}

// Closing a socket with unread data would destroy what the client has not received yet.
void Connections::drain(Connection& connection) {
  connection.phase = Phase::draining;
  connection.since = Clock::now();
  connection.deadline = connection.since + std::min<milliseconds>(limits_.timeout, kMaxDrain);
  ::shutdown(connection.socket.get(), SHUT_WR);
}

void Connections::discard(Connection& connection) {
  constexpr size_t kMost = size_t{1} << 20;
  const ssize_t count = ::recv(connection.socket.get(), nullptr, kMost, MSG_TRUNC | MSG_DONTWAIT);  // copies nothing
  if (count == 0 || (count < 0 && !would_block(errno))) close(connection);
}

// The client has closed its end while the request is answered.
void Connections::leave(Connection& connection) {
  connection.is_half_closed = true;
  const std::lock_guard lock(connection.exchange->mutex);
  connection.exchange->is_gone = true;
}

void Connections::expire(Connection& connection) {
  if (connection.phase == Phase::reading && connection.parser.has_begun())
    return refuse_bad(connection, BadRequest(408, "the request did not arrive in time"));
  if (connection.phase != Phase::waiting) return close(connection);
  Exchange& exchange = *connection.exchange;
  exchange.connection = nullptr;  // a later answer is dropped
  Response late;
  {
    const std::lock_guard lock(exchange.mutex);
    exchange.is_gone = true;
    late = std::move(exchange.late->second);
  }
  add_head(connection, late, false);
  connection.is_complete = true;
  service_.count(exchange.request, late.status, Clock::now() - exchange.begun);
  begin_writing(connection);
}

void Connections::close(Connection& connection) {
  connection.is_closed = true;
  release_body(connection);
  if (!connection.exchange) return;
  connection.exchange->connection = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::erase(queue_, connection.exchange);  // its body would stay until a worker looks at it
  }
  const std::lock_guard lock(connection.exchange->mutex);
  connection.exchange->is_gone = true;
}

}  // namespace lockstep::http
