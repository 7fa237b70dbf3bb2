#include "comm/tcp/connect.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "comm/tcp/handshake.h"
#include "comm/tcp/listener.h"
#include "lockstep/error.h"

namespace lockstep::detail {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using Time = Links::Time;

constexpr auto kLongestWait = std::chrono::hours(24 * 365);
// A full queue of a listener drops the first packet of a connection; the system would repeat it after a second.
constexpr milliseconds kFirstConnectTime{300}, kMostConnectTime{5000};
constexpr milliseconds kFirstPause{10}, kMostPause{500};
// A peer answers when it has found all addresses, which may take long. It resets what it does not want.
constexpr milliseconds kAnswerTime{30000};

nanoseconds until(Time deadline) {
  return std::clamp<nanoseconds>(deadline - Clock::now(), nanoseconds(0), kLongestWait);
}

// One rank that this one dials, again and again until the handshake has succeeded.
class Dial {
 public:
  Dial(const GroupSecret& secret, int rank, int peer, int channel, const HostPort& there)
      : secret_(secret), rank_(rank), peer_(peer), channel_(channel) {
    addrinfo hints = {};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(there.host.c_str(), std::to_string(there.port).c_str(), &hints, &found) != 0)
      throw LinkBroken{peer, fmt::format("\"{}\" is not an address", there.host)};
    std::memcpy(&address_, found->ai_addr, found->ai_addrlen);
    length_ = found->ai_addrlen;
    freeaddrinfo(found);
  }

  int peer() const { return peer_; }
  int channel() const { return channel_; }
  bool done() const { return done_; }
  bool has_socket() const { return socket_.is_open(); }
  Socket take_socket() { return std::move(socket_); }

  void add_polled(std::vector<pollfd>& polled) const {
    if (done_ || !socket_.is_open()) return;
    const bool writes = !connected_ || handshake_->wants_to_write();
    polled.push_back(
        {.fd = socket_.fd(), .events = static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), .revents = 0});
  }
  Time next_deadline() const { return done_ ? Time::max() : deadline_; }

  // Throws LinkBroken when the peer cannot be there.
  void serve() {
    if (done_) return;
    if (!socket_.is_open() && Clock::now() >= deadline_) start();
    if (!socket_.is_open()) return;
    if (!connected_ && !check_connected()) return;
    switch (handshake_->advance(socket_.fd())) {
      case Handshake::State::done:
        done_ = true;
        return;
      case Handshake::State::failed:
        return pause();
      case Handshake::State::running:
        break;
    }
    // A peer that has answered decides itself whether this connection counts.
    if (handshake_->peer_has_proved())
      deadline_ = Time::max();
    else if (Clock::now() >= deadline_)
      pause();
  }

 private:
  void start() {
    socket_ = Socket(::socket(address_.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_.is_open()) throw LinkBroken{peer_, fmt::format("socket: {}", std::strerror(errno))};
    connected_ = false;
    handshake_.emplace(Handshake::caller(secret_, rank_, peer_, channel_));
    deadline_ = Clock::now() + connect_time_;
    connect_time_ = std::min(connect_time_ * 2, kMostConnectTime);
    if (::connect(socket_.fd(), reinterpret_cast<const sockaddr*>(&address_), length_) != 0 && errno != EINPROGRESS)
      give_up_or_pause(errno);
  }

  bool check_connected() {
    pollfd polled{.fd = socket_.fd(), .events = POLLOUT, .revents = 0};
    if (::poll(&polled, 1, 0) <= 0) {
      if (Clock::now() >= deadline_) pause();
      return false;
    }
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      give_up_or_pause(error);
      return false;
    }
    connected_ = true;
    deadline_ = Clock::now() + kAnswerTime;
    return true;
  }

  // A peer that was there before it gave its address away, and is not now, does not come back. Everything else can be
  // the effect of strangers that keep the peer, or the ports of this machine, busy.
  void give_up_or_pause(int error) {
    if (error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH || error == EACCES || error == EPERM)
      throw LinkBroken{peer_, fmt::format("connect to {}: {}", host_port_of(address_).host, std::strerror(error))};
    pause();
  }

  // Closes without a reset, which would destroy a hello that the peer has not read: it would look like a stranger's.
  void pause() {
    socket_.close();
    deadline_ = Clock::now() + pause_;
    pause_ = std::min(pause_ * 2, kMostPause);
  }

  const GroupSecret& secret_;
  const int rank_, peer_, channel_;
  sockaddr_storage address_ = {};
  socklen_t length_ = 0;
  Socket socket_;
  std::optional<Handshake> handshake_;
  bool connected_ = false, done_ = false;
  Time deadline_ = Clock::now();  // of this attempt, or when the next begins
  milliseconds connect_time_ = kFirstConnectTime, pause_ = kFirstPause;
};

std::string to_text(const HostPort& where) { return fmt::format("{} {}", where.port, where.host); }

HostPort host_port_from(const std::string& text) {
  const size_t space = std::min(text.find(' '), text.size());
  return {text.substr(std::min(space + 1, text.size())), std::atoi(text.c_str())};
}

class Connecting {
 public:
  explicit Connecting(const ConnectOptions& options) : options_(options) {
    secret_.group = options.prefix;
    secret_.size = options.size;
    secret_.channels = options.channels;
  }

  std::vector<std::vector<Socket>> run() {
    for (int channel = 0; channel < options_.channels; ++channel)
      sockets_.emplace_back(static_cast<size_t>(options_.size));
    if (options_.size == 1) return std::move(sockets_);
    if (options_.rank + 1 < options_.size)
      listener_.emplace(options_.address, options_.address_length, secret_, options_.rank);
    exchange_notes();
    std::vector<pollfd> polled;
    for (int missing = first_missing(); missing >= 0; missing = first_missing()) {
      if (Clock::now() >= options_.deadline) throw LinkTimeout{missing};
      polled.clear();
      Time next = options_.deadline;
      if (listener_) {
        listener_->add_polled(polled);
        next = std::min(next, listener_->next_deadline());
      }
      for (const Dial& dial : dials_) {
        dial.add_polled(polled);
        next = std::min(next, dial.next_deadline());
      }
      constexpr nanoseconds kMostPolled = std::chrono::minutes(1);  // fits a poll's argument
      const auto wait = std::chrono::ceil<milliseconds>(std::min(until(next), kMostPolled));
      ::poll(polled.data(), polled.size(), static_cast<int>(wait.count()));
      serve();
    }
    return std::move(sockets_);
  }

 private:
  // Makes the secret or reads it, and learns where the others are.
  void exchange_notes() {
    const std::string secret_key = options_.prefix + "/secret";
    if (options_.rank == 0) {
      secret_.key = random_bytes32();
      options_.store.set(secret_key, std::string(secret_.key.begin(), secret_.key.end()));
    }
    const HostPort here = listener_ ? listener_->where() : HostPort{host_port_of(options_.address).host, 0};
    options_.store.set(address_key(options_.rank), to_text(here));
    if (options_.rank != 0) {
      const std::string secret = note(secret_key, 0);
      if (secret.size() != secret_.key.size()) throw LinkBroken{0, "it has set no secret of 32 bytes"};
      std::copy(secret.begin(), secret.end(), secret_.key.begin());
    }
    for (int peer = 0; peer < options_.size; ++peer) {
      if (peer == options_.rank) continue;
      const HostPort there = host_port_from(note(address_key(peer), peer));
      for (int channel = 0; peer < options_.rank && channel < options_.channels; ++channel)
        dials_.emplace_back(secret_, options_.rank, peer, channel, there);
    }
  }

  std::string address_key(int rank) const { return fmt::format("{}/address/{}", options_.prefix, rank); }

  std::string note(const std::string& key, int peer) const {
    try {
      return options_.store.get(key, until(options_.deadline));
    } catch (const CommTimeout&) {
      throw LinkTimeout{peer};
    } catch (const std::exception& error) {
      if (Clock::now() >= options_.deadline) throw LinkTimeout{peer};
      throw LinkBroken{peer, error.what()};
    }
  }

  int first_missing() const {
    for (int peer = 0; peer < options_.size; ++peer)
      for (const std::vector<Socket>& channel : sockets_)
        if (peer != options_.rank && !channel[static_cast<size_t>(peer)].is_open()) return peer;
    return -1;
  }

  Socket& place(int peer, int channel) { return sockets_[static_cast<size_t>(channel)][static_cast<size_t>(peer)]; }

  void serve() {
    if (listener_)
      for (RankListener::Arrival& one : listener_->serve()) place(one.peer, one.channel) = std::move(one.socket);
    for (Dial& dial : dials_) {
      dial.serve();
      if (dial.done() && dial.has_socket()) place(dial.peer(), dial.channel()) = dial.take_socket();
    }
  }

  const ConnectOptions& options_;
  GroupSecret secret_;
  std::optional<RankListener> listener_;
  std::vector<Dial> dials_;
  std::vector<std::vector<Socket>> sockets_;  // of each channel, by rank
};

}  // namespace

std::vector<std::vector<Socket>> connect_ranks(const ConnectOptions& options) { return Connecting(options).run(); }

}  // namespace lockstep::detail
