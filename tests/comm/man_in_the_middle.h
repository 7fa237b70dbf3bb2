// A man in the middle of the TCP connections of two ranks, which changes, drops or repeats what rank 1 sends.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/os/descriptor.h"
#include "comm/key_store.h"
#include "comm/tcp/handshake.h"

namespace lockstep {

inline sockaddr_in loopback(int port) {
  sockaddr_in out = {};
  out.sin_family = AF_INET;
  out.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &out.sin_addr);
  return out;
}

// Reads up to `count` bytes; fewer when the other side closes.
inline std::string read_bytes(int fd, size_t count) {
  std::string out(count, '\0');
  size_t done = 0;
  while (done < count) {
    const ssize_t got = ::recv(fd, out.data() + done, count - done, 0);
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  out.resize(done);
  return out;
}
inline void write_bytes(int fd, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t sent = ::send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent <= 0) return;
    done += static_cast<size_t>(sent);
  }
}

// What the man in the middle does with the first `bytes` bytes that rank 1 sends on the data channel after its
// handshake. It then forwards everything, or, with `cut`, closes the connection.
struct Attack {
  size_t bytes = 0;
  std::function<std::string(const std::string& wire)> change = [](const std::string& wire) { return wire; };
  bool cut = false;
  bool reflect = false;  // sends the bytes back to rank 1, too
  bool mute = false;     // then drops everything on all connections, and keeps them open
};

// Forwards the connections of rank 1 to rank 0.
class ManInTheMiddle {
 public:
  explicit ManInTheMiddle(Attack attack) : attack_(std::move(attack)), listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in here = loopback(0);
    socklen_t size = sizeof here;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&here), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&here), &size), 0);
    port_ = ntohs(here.sin_port);
  }
  ~ManInTheMiddle() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    if (accepting_.joinable()) accepting_.join();
    for (std::thread& thread : threads_) thread.join();
  }
  ManInTheMiddle(const ManInTheMiddle&) = delete;
  ManInTheMiddle& operator=(const ManInTheMiddle&) = delete;

  // Begins to forward. Returns the port for rank 1.
  int forward_to(int port) {
    accepting_ = std::thread([this, port] { accept_all(port); });
    return port_;
  }
  // The bytes before the attack.
  const std::string& wire() const { return wire_; }

 private:
  struct Connection {
    Descriptor caller, listener;
  };

  void accept_all(int port) {
    while (true) {
      auto both = std::make_shared<Connection>();
      both->caller = Descriptor(::accept(listener_.get(), nullptr, nullptr));
      if (!both->caller) return;
      both->listener = Descriptor(::socket(AF_INET, SOCK_STREAM, 0));
      const sockaddr_in there = loopback(port);
      EXPECT_EQ(::connect(both->listener.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there), 0);
      threads_.emplace_back([this, both] { forward(both->listener.get(), both->caller.get()); });
      threads_.emplace_back([this, both] {
        const std::string hello = read_bytes(both->caller.get(), detail::Handshake::kHelloBytes);
        write_bytes(both->listener.get(), hello);
        if (hello.size() == detail::Handshake::kHelloBytes && hello[16] == 1) attack(*both);
        forward(both->caller.get(), both->listener.get());
      });
    }
  }
  void attack(const Connection& both) {
    write_bytes(both.listener.get(), read_bytes(both.caller.get(), detail::Handshake::kMacBytes));
    wire_ = read_bytes(both.caller.get(), attack_.bytes);
    if (attack_.mute) mute_ = true;
    if (attack_.reflect) write_bytes(both.caller.get(), wire_);
    write_bytes(both.listener.get(), attack_.change(wire_));
    if (attack_.cut) ::shutdown(both.listener.get(), SHUT_RDWR);
  }
  void forward(int from, int to) const {
    char bytes[65536];
    while (true) {
      const ssize_t got = ::recv(from, bytes, sizeof bytes, 0);
      if (got <= 0) break;
      if (!mute_) write_bytes(to, std::string(bytes, static_cast<size_t>(got)));
    }
    if (!mute_) ::shutdown(to, SHUT_WR);
  }

  const Attack attack_;
  const Descriptor listener_;
  int port_ = 0;
  std::string wire_;
  std::atomic<bool> mute_{false};
  std::thread accepting_;
  std::vector<std::thread> threads_;
};

// The keys of rank 1, in which rank 0 has the address of the man in the middle.
class DivertedStore final : public KeyStore {
 public:
  DivertedStore(KeyStore& store, ManInTheMiddle& middle) : store_(store), middle_(middle) {}
  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::string get(const std::string& key, std::chrono::nanoseconds timeout) override {
    std::string value = store_.get(key, timeout);
    if (!key.ends_with("/address/0")) return value;
    const size_t end = value.find(' ');
    return std::to_string(middle_.forward_to(std::stoi(value.substr(0, end)))) + value.substr(end);
  }

 private:
  KeyStore& store_;
  ManInTheMiddle& middle_;
};

}  // namespace lockstep
