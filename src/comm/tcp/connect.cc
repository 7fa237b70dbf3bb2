#include "comm/tcp/connect.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>

#include "comm/tcp/listener.h"
#include "lockstep/error.h"

namespace lockstep::detail {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using Time = Links::Time;

constexpr auto kMaxConnectWait = std::chrono::hours(24 * 365);
// A listener with a full queue drops the first packet of a connection, and the kernel resends it only after a second.
// So short attempts are better at first.
constexpr milliseconds kFirstConnectTime{300}, kMaxConnectTime{5000};
constexpr milliseconds kFirstRetryTime{10}, kMaxRetryTime{500};
// A peer answers only after it has read the addresses of all ranks, which may take long. It resets connections that it
// refuses.
constexpr milliseconds kAnswerTime{30000};

nanoseconds until(Time deadline) {
  return std::clamp<nanoseconds>(deadline - Clock::now(), nanoseconds(0), kMaxConnectWait);
}

// Connects to one channel of one rank: repeats attempts until a handshake succeeds.
class Dialer {
 public:
  Dialer(const GroupSecret& secret, int rank, int peer, int channel, const HostPort& there)
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
  bool has_socket() const { return static_cast<bool>(socket_); }
  RankConnection take_connection() { return {std::move(socket_), handshake_->keys()}; }

  void add_polled(std::vector<pollfd>& polled) const {
    if (done_ || !socket_) return;
    const bool writes = !connected_ || handshake_->wants_to_write();
    polled.push_back(
        {.fd = socket_.get(), .events = static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), .revents = 0});
  }
  Time next_deadline() const { return done_ ? Time::max() : deadline_; }

  // Advances the current attempt, or starts one. Throws LinkBroken when the peer cannot be running.
  void serve() {
    if (done_) return;
    if (!socket_ && Clock::now() >= deadline_) start();
    if (!socket_) return;
    if (!connected_ && !check_connected()) return;
    switch (handshake_->advance(socket_.get())) {
      case Handshake::State::done:
        done_ = true;
        return;
      case Handshake::State::failed:
        return retry_later();
      case Handshake::State::running:
        break;
    }
    // The peer has answered: it decides whether to keep this connection.
    if (handshake_->peer_has_proved())
      deadline_ = Time::max();
    else if (Clock::now() >= deadline_)
      retry_later();
  }

 private:
  void start() {
    socket_ = Descriptor(::socket(address_.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_) throw LinkBroken{peer_, fmt::format("socket: {}", std::strerror(errno))};
    connected_ = false;
    handshake_.emplace(Handshake::caller(secret_, rank_, peer_, channel_));
    deadline_ = Clock::now() + connect_time_;
    connect_time_ = std::min(connect_time_ * 2, kMaxConnectTime);
    if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address_), length_) != 0 && errno != EINPROGRESS)
      throw_or_retry(errno);
  }

  bool check_connected() {
    pollfd polled{.fd = socket_.get(), .events = POLLOUT, .revents = 0};
    if (::poll(&polled, 1, 0) <= 0) {
      if (Clock::now() >= deadline_) retry_later();
      return false;
    }
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      throw_or_retry(error);
      return false;
    }
    connected_ = true;
    deadline_ = Clock::now() + kAnswerTime;
    return true;
  }

  // A peer listened before it published its address, so when nothing listens there now, the peer has ended. Any other
  // error may be caused by foreign connections that exhaust the peer, or the ports of this host.
  void throw_or_retry(int error) {
    if (error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH || error == EACCES || error == EPERM)
      throw LinkBroken{peer_, fmt::format("connect to {}: {}", host_port_of(address_).host, std::strerror(error))};
    retry_later();
  }

  // Closes without a reset: a reset would discard a hello that the peer has not read, and the peer would log a foreign
  // connection.
  void retry_later() {
    socket_.close();
    deadline_ = Clock::now() + retry_time_;
    retry_time_ = std::min(retry_time_ * 2, kMaxRetryTime);
  }

  const GroupSecret& secret_;
  const int rank_, peer_, channel_;
  sockaddr_storage address_ = {};
  socklen_t length_ = 0;
  Descriptor socket_;
  std::optional<Handshake> handshake_;
  bool connected_ = false, done_ = false;
  Time deadline_ = Clock::now();  // end of the current attempt, or start of the next one
  milliseconds connect_time_ = kFirstConnectTime, retry_time_ = kFirstRetryTime;
};

// What a rank publishes: where it listens, how it protects its connections, and its preferred cipher.
struct Publication {
  HostPort where;
  std::string security, cipher;
};

std::string to_text(const Publication& own) {
  return fmt::format("{} {} {} {}", own.where.port, own.where.host, own.security, own.cipher);
}

Publication publication_from(const std::string& text) {
  Publication out;
  std::istringstream words(text);
  words >> out.where.port >> out.where.host >> out.security >> out.cipher;
  return out;
}

class GroupConnector {
 public:
  explicit GroupConnector(const ConnectOptions& options) : options_(options) {
    secret_.group = options.prefix;
    secret_.size = options.size;
    secret_.channels = options.channels;
    secret_.security = options.security;
    secret_.cipher = options.cipher;
  }

  RankConnections run() {
    for (int channel = 0; channel < options_.channels; ++channel)
      connections_.emplace_back(static_cast<size_t>(options_.size));
    if (options_.size == 1) return {std::move(connections_), secret_.cipher};
    if (options_.rank + 1 < options_.size)
      listener_.emplace(options_.address, options_.address_length, options_.ports, secret_, options_.rank);
    exchange_addresses();
    std::vector<pollfd> polled;
    for (int missing = first_missing(); missing >= 0; missing = first_missing()) {
      if (Clock::now() >= options_.deadline) throw LinkTimeout{missing};
      polled.clear();
      Time next = options_.deadline;
      if (listener_) {
        listener_->add_polled(polled);
        next = std::min(next, listener_->next_deadline());
      }
      for (const Dialer& dialer : dialers_) {
        dialer.add_polled(polled);
        next = std::min(next, dialer.next_deadline());
      }
      constexpr nanoseconds kMaxPoll = std::chrono::minutes(1);  // fits the argument of poll()
      const auto wait = std::chrono::ceil<milliseconds>(std::min(until(next), kMaxPoll));
      ::poll(polled.data(), polled.size(), static_cast<int>(wait.count()));
      serve();
    }
    return {std::move(connections_), secret_.cipher};
  }

 private:
  // Creates or reads the secret, and exchanges addresses with the other ranks.
  void exchange_addresses() {
    const std::string secret_key = options_.prefix + "/secret";
    if (options_.rank == 0) {
      secret_.key = random_bytes32();
      options_.store.set(secret_key, std::string(secret_.key.begin(), secret_.key.end()));
    }
    const HostPort here = listener_ ? listener_->address() : HostPort{host_port_of(options_.address).host, 0};
    options_.store.set(address_key(options_.rank), to_text({here, std::string(lockstep::name(options_.security)),
                                                            std::string(detail::name(options_.cipher))}));
    if (options_.rank != 0) {
      const std::string secret = read_key(secret_key, 0);
      if (secret.size() != secret_.key.size()) throw LinkBroken{0, "its secret is missing or does not have 32 bytes"};
      std::copy(secret.begin(), secret.end(), secret_.key.begin());
    }
    for (int peer = 0; peer < options_.size; ++peer) {
      if (peer == options_.rank) continue;
      const Publication there = publication_from(read_key(address_key(peer), peer));
      if (there.security != lockstep::name(options_.security))
        throw LinkBroken{peer, fmt::format("its connections are {}, and those of this rank are {}; give all processes "
                                           "the same --data-security (LOCKSTEP_DATA_SECURITY)",
                                           there.security, lockstep::name(options_.security))};
      // A group uses AES only if all of its ranks compute it fast.
      if (there.cipher != detail::name(Cipher::aes_128_gcm)) secret_.cipher = Cipher::chacha20_poly1305;
      for (int channel = 0; peer < options_.rank && channel < options_.channels; ++channel)
        dialers_.emplace_back(secret_, options_.rank, peer, channel, there.where);
    }
  }

  std::string address_key(int rank) const { return fmt::format("{}/address/{}", options_.prefix, rank); }

  std::string read_key(const std::string& key, int peer) const {
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
      for (const std::vector<RankConnection>& channel : connections_)
        if (peer != options_.rank && !channel[static_cast<size_t>(peer)].socket) return peer;
    return -1;
  }

  RankConnection& connection(int peer, int channel) {
    return connections_[static_cast<size_t>(channel)][static_cast<size_t>(peer)];
  }

  void serve() {
    if (listener_)
      for (RankListener::Arrival& one : listener_->serve())
        connection(one.peer, one.channel) = {std::move(one.socket), one.keys};
    for (Dialer& dialer : dialers_) {
      dialer.serve();
      if (dialer.done() && dialer.has_socket()) connection(dialer.peer(), dialer.channel()) = dialer.take_connection();
    }
  }

  const ConnectOptions& options_;
  GroupSecret secret_;
  std::optional<RankListener> listener_;
  std::vector<Dialer> dialers_;
  std::vector<std::vector<RankConnection>> connections_;  // by channel and rank
};

}  // namespace

RankConnections connect_ranks(const ConnectOptions& options) { return GroupConnector(options).run(); }

}  // namespace lockstep::detail
