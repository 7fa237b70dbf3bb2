#include "http/connections.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>

#include "base/check.h"
#include "base/start_thread.h"

namespace lockstep::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kAcceptPause{100}, kMaxDrain{2000};

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Connections::Connections(Descriptor listener, const Limits& limits, Answer answer)
    : listener_(std::move(listener)), limits_(limits), answer_(std::move(answer)), wake_(make_pipe(O_NONBLOCK)) {}

void Connections::wake() const { (void)!::write(wake_.writer.get(), "x", 1); }

void Connections::stop() {
  stopping_ = true;
  wake();
}

// What the slowest client takes.
Connections::Clock::duration Connections::time_of(size_t bytes) const {
  const std::chrono::duration<double> seconds(static_cast<double>(bytes) / static_cast<double>(limits_.slowest_client));
  return std::chrono::duration_cast<Clock::duration>(seconds);
}

Connections::Clock::time_point Connections::deadline_of(Clock::time_point begin, size_t bytes) const {
  return begin + limits_.timeout + time_of(bytes);
}

void Connections::run() {
  std::vector<std::thread> threads;
  for (int i = 0; i < limits_.threads; ++i) threads.push_back(start_thread([this] { work(); }));
  const auto in_progress = [](const Connection& each) {
    return each.state == State::queued || each.state == State::writing;
  };
  while (!stopping_ || std::any_of(all_.begin(), all_.end(), in_progress)) {
    wait_for_events();
    handle_events();
    take_answers();
    all_.remove_if([](const Connection& each) { return each.is_closed; });
  }
  all_.clear();
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

// Fills events_: the pipe, the listener, and the connections in the order of the list.
void Connections::wait_for_events() {
  const auto now = Clock::now();
  auto until = now + seconds(60);
  const bool accepts = !stopping_ && now >= accept_again_;
  if (!stopping_ && !accepts) until = std::min(until, accept_again_);
  events_.assign(1, {wake_.reader.get(), POLLIN, 0});
  events_.push_back({accepts ? listener_.get() : -1, POLLIN, 0});
  for (const Connection& each : all_) {
    const bool waits = each.state != State::queued;
    const short wanted = each.state == State::writing ? POLLOUT : POLLIN;
    events_.push_back({waits ? each.socket.get() : -1, wanted, 0});
    if (waits) until = std::min(until, each.has_unread ? now : each.deadline);
  }
  const auto left = std::chrono::ceil<milliseconds>(until - now).count();
  if (::poll(events_.data(), events_.size(), static_cast<int>(std::max<int64_t>(left, 0))) < 0)
    for (pollfd& each : events_) each.revents = 0;
}

void Connections::handle_events() {
  if (events_[0].revents != 0) {
    std::array<char, 256> ignored;
    while (::read(wake_.reader.get(), ignored.data(), ignored.size()) > 0) {
    }
  }
  const auto now = Clock::now();
  size_t at = 2;
  for (Connection& each : all_) {
    const bool is_ready = events_[at++].revents != 0;
    if (each.state == State::queued) continue;
    if (each.state == State::writing) {
      if (is_ready) write(each);
    } else if (stopping_) {
      each.is_closed = true;
    } else if (is_ready) {
      read(each);
    } else if (each.has_unread) {
      take_request(each);
    }
    if (each.state != State::queued && !each.is_closed && now >= each.deadline) expire(each);
  }
  if (events_[1].revents != 0 && !stopping_) accept_all();
}

void Connections::accept_all() {
  for (;;) {
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (!would_block(errno) && errno != ECONNABORTED) accept_again_ = Clock::now() + kAcceptPause;
      return;
    }
    const int yes = 1;
    (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    if (std::ssize(all_) >= limits_.connections && !make_room()) {
      Response response;
      response.set_error(503, fmt::format("{} connections are open already; try again later", limits_.connections));
      const std::string text = to_bytes({}, response, false);
      (void)!::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      continue;
    }
    begin_reading(all_.emplace_back(std::move(socket), limits_.max_body));
  }
}

// Closes the connection that has been idle for the longest time since it was answered.
bool Connections::make_room() {
  auto found = all_.end();
  for (auto each = all_.begin(); each != all_.end(); ++each)
    if (each->state == State::reading && each->was_served && !each->parser.has_begun() &&
        (found == all_.end() || each->deadline < found->deadline))
      found = each;
  if (found == all_.end()) return false;
  all_.erase(found);
  return true;
}

void Connections::expire(Connection& connection) {
  if (connection.state == State::reading && connection.parser.has_begun())
    reject(connection, BadRequest(408, "the request did not arrive in time"));
  else
    connection.is_closed = true;
}

void Connections::begin_reading(Connection& connection) {
  connection.state = State::reading;
  connection.begun = Clock::now();
  connection.deadline = deadline_of(connection.begun, 0);
  connection.has_unread = connection.parser.has_begun();
}

void Connections::read(Connection& connection) {
  std::array<char, 65536> bytes;
  const ssize_t count = ::recv(connection.socket.get(), bytes.data(), bytes.size(), 0);
  if (count <= 0) {
    if (count == 0 || !would_block(errno)) connection.is_closed = true;
    return;
  }
  if (connection.state == State::draining) return;
  if (!connection.parser.has_begun()) connection.begun = Clock::now();
  connection.parser.append({bytes.data(), static_cast<size_t>(count)});
  take_request(connection);
}

void Connections::take_request(Connection& connection) {
  connection.has_unread = false;
  try {
    std::optional<Request> request = connection.parser.next();
    if (!request) {
      connection.deadline = deadline_of(connection.begun, connection.parser.body_bytes());
      constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      if (connection.parser.should_continue())
        (void)!::send(connection.socket.get(), kContinue.data(), kContinue.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      return;
    }
    connection.request = std::move(*request);
  } catch (const BadRequest& error) {
    reject(connection, error);
    return;
  }
  connection.state = State::queued;
  if (limits_.threads == 0) {
    answer(connection);
    begin_writing(connection);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(&connection);
  }
  changed_.notify_one();
}

void Connections::reject(Connection& connection, const BadRequest& error) {
  Response response;
  response.set_error(error.status, error.what());
  connection.out = to_bytes({}, response, false);
  connection.is_last = true;
  begin_writing(connection);
}

void Connections::begin_writing(Connection& connection) {
  connection.state = State::writing;
  connection.sent = 0;
  connection.deadline = deadline_of(Clock::now(), connection.out.size());
  write(connection);
}

void Connections::write(Connection& connection) {
  std::string& out = connection.out;
  while (connection.sent < out.size()) {
    const ssize_t count = ::send(connection.socket.get(), out.data() + connection.sent, out.size() - connection.sent,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) {
      if (!would_block(errno)) connection.is_closed = true;
      return;
    }
    connection.sent += static_cast<size_t>(count);
  }
  out = {};
  connection.was_served = true;
  if (connection.is_last)
    drain(connection);
  else
    begin_reading(connection);
}

// Closing a socket with unread data would destroy what the client has not received yet.
void Connections::drain(Connection& connection) {
  connection.state = State::draining;
  connection.deadline = Clock::now() + std::min<milliseconds>(limits_.timeout, kMaxDrain);
  ::shutdown(connection.socket.get(), SHUT_WR);
}

void Connections::take_answers() {
  std::deque<Connection*> answered;
  {
    const std::lock_guard lock(mutex_);
    answered.swap(answered_);
  }
  for (Connection* each : answered) begin_writing(*each);
}

void Connections::work() {
  for (;;) {
    Connection* connection = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ended_ || !queue_.empty(); });
      if (queue_.empty()) return;
      connection = queue_.front();
      queue_.pop_front();
    }
    answer(*connection);
    {
      const std::lock_guard lock(mutex_);
      answered_.push_back(connection);
    }
    wake();
  }
}

void Connections::answer(Connection& connection) {
  const Response response = answer_(connection.request);
  connection.is_last =
      !connection.request.keep_alive || stopping_ || (response.stream && !connection.request.takes_chunks);
  connection.out = to_bytes(connection.request, response, !connection.is_last);
  if (response.stream && connection.request.method != "HEAD") send_stream(connection, response);
}

void Connections::send_stream(Connection& connection, const Response& response) {
  LOCKSTEP_CHECK(limits_.threads > 0, "a stream needs a thread");
  Clock::duration left = limits_.timeout;
  bool is_open = send_all(connection, connection.out, left);
  const bool chunks = connection.request.takes_chunks;
  if (is_open)
    response.stream([&](std::string_view piece) {
      if (piece.empty()) return is_open && !stopping_;
      is_open =
          is_open && !stopping_ &&
          send_all(connection, chunks ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : std::string(piece), left);
      return is_open;
    });
  connection.out = is_open && chunks ? "0\r\n\r\n" : "";
  connection.is_last = connection.is_last || !is_open;
}

// `left`: how long the stream may still wait for the client. False: the client is gone or too slow.
bool Connections::send_all(Connection& connection, std::string_view text, Clock::duration& left) {
  while (!text.empty()) {
    const ssize_t count = ::send(connection.socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      text.remove_prefix(static_cast<size_t>(count));
      left = std::min<Clock::duration>(left + time_of(static_cast<size_t>(count)), limits_.timeout);
      continue;
    }
    if (!would_block(errno) || left <= Clock::duration::zero()) return false;
    const auto begin = Clock::now();
    pollfd ready{connection.socket.get(), POLLOUT, 0};
    ::poll(&ready, 1, static_cast<int>(std::chrono::ceil<milliseconds>(left).count()));
    left -= Clock::now() - begin;
  }
  return true;
}

}  // namespace lockstep::http
