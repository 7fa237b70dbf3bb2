// The handshake of TCP connections, and unauthorized connections, which must have no effect on a group.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <thread>

#include "comm/file_store.h"
#include "comm/tcp/handshake.h"
#include "comm/tcp/tcp.h"

namespace lockstep {
namespace {

using conformance::FileStore;
using detail::Bytes32;
using detail::GroupSecret;
using detail::Handshake;
using State = Handshake::State;

// Two ends of a connection.
struct Ends {
  Ends() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0); }
  ~Ends() {
    for (const int fd : fds) ::close(fd);
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  int fds[2] = {-1, -1};
};

GroupSecret secret_of(char letter, int size = 3) {
  GroupSecret secret{.group = "group", .size = size, .channels = 2};
  secret.key.fill(static_cast<uint8_t>(letter));
  return secret;
}

std::string read_some(int fd) {
  char bytes[512];
  const ssize_t count = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
  return {bytes, static_cast<size_t>(std::max<ssize_t>(count, 0))};
}

void write_all(int fd, const std::string& bytes) {
  ASSERT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

// Runs a complete handshake and returns the bytes that the caller has sent.
std::string record(const GroupSecret& secret, std::set<Bytes32>& seen) {
  Ends caller_side, listener_side;  // caller - test - listener
  Handshake caller = Handshake::caller(secret, 2, 1, 1), listener = Handshake::listener(secret, 1, seen);
  std::string sent;
  State a = State::running, b = State::running;
  for (int i = 0; i < 10; ++i) {
    if (a == State::running) a = caller.advance(caller_side.fds[0]);
    const std::string there = read_some(caller_side.fds[1]);
    sent += there;
    if (!there.empty()) write_all(listener_side.fds[1], there);
    if (b == State::running) b = listener.advance(listener_side.fds[0]);
    if (const std::string back = read_some(listener_side.fds[1]); !back.empty()) write_all(caller_side.fds[1], back);
  }
  EXPECT_EQ(a, State::done) << caller.failure();
  EXPECT_EQ(b, State::done) << listener.failure();
  EXPECT_EQ(listener.peer(), 2);
  EXPECT_EQ(listener.channel(), 1);
  return sent;
}

// Returns why a listener that reads these bytes rejects them.
std::string failure_after(const std::string& bytes, const GroupSecret& secret, int rank, std::set<Bytes32>& seen) {
  Ends ends;
  Handshake listener = Handshake::listener(secret, rank, seen);
  write_all(ends.fds[1], bytes);
  EXPECT_EQ(listener.advance(ends.fds[0]), State::failed);
  return listener.failure();
}

TEST(TcpHandshake, SucceedsBetweenRanksThatKnowTheSecret) {
  std::set<Bytes32> seen;
  const GroupSecret secret = secret_of('s');
  EXPECT_EQ(record(secret, seen).size(), Handshake::kHelloBytes + Handshake::kMacBytes);
}

TEST(TcpHandshake, RejectsAReplayedHandshake) {
  std::set<Bytes32> seen, nothing_seen;
  const GroupSecret secret = secret_of('s');
  const std::string sent = record(secret, seen);
  EXPECT_EQ(failure_after(sent, secret, 1, seen), "it repeats an earlier handshake");
  // A listener that has not seen the hello uses a new nonce, which the recorded proof does not match.
  EXPECT_EQ(failure_after(sent, secret, 1, nothing_seen), "it does not know the secret of the group");
  // A hello for one rank is not valid for another.
  EXPECT_EQ(failure_after(sent, secret, 0, nothing_seen), "it names ranks that do not match");
}

TEST(TcpHandshake, RejectsWrongSecretsAndEveryChangedByte) {
  std::set<Bytes32> seen;
  const GroupSecret secret = secret_of('s'), other = secret_of('t');
  const std::string hello = record(secret, seen).substr(0, Handshake::kHelloBytes);
  EXPECT_EQ(failure_after(hello, other, 1, seen), "it does not know the secret of the group");
  for (size_t i = 0; i < hello.size(); ++i) {
    std::string changed = hello;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    std::set<Bytes32> none;
    EXPECT_NE(failure_after(changed, secret, 1, none), "") << i;
  }
  GroupSecret elsewhere = secret;
  elsewhere.group = "another";
  EXPECT_EQ(failure_after(hello, elsewhere, 1, seen), "it does not know the secret of the group");
}

TEST(TcpHandshake, CallerRejectsAListenerWithoutTheSecret) {
  Ends ends;
  const GroupSecret secret = secret_of('s');
  Handshake caller = Handshake::caller(secret, 2, 1, 0);
  EXPECT_EQ(caller.advance(ends.fds[0]), State::running);
  write_all(ends.fds[1], std::string(Handshake::kAnswerBytes, 'x'));
  EXPECT_EQ(caller.advance(ends.fds[0]), State::failed);
  EXPECT_EQ(caller.failure(), "it does not know the secret of the group");
}

// A connection from a loopback address that no rank uses.
class UnauthorizedClient {
 public:
  UnauthorizedClient(int port, const std::string& from) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own = address(from, 0), there = address("127.0.0.1", port);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&there), sizeof there) == 0;
  }
  ~UnauthorizedClient() { ::close(fd_); }
  UnauthorizedClient(const UnauthorizedClient&) = delete;
  UnauthorizedClient& operator=(const UnauthorizedClient&) = delete;

  bool connected() const { return connected_; }
  void send(const std::string& bytes) const { (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

 private:
  static sockaddr_in address(const std::string& host, int port) {
    sockaddr_in out = {};
    out.sin_family = AF_INET;
    out.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, host.c_str(), &out.sin_addr);
    return out;
  }

  int fd_;
  bool connected_ = false;
};

std::unique_ptr<Comm> join_rank(FileStore& store, int rank, int n) {
  return tcp_comm({.store = store, .rank = rank, .size = n, .address = "127.0.0.1"});
}

int port_of(FileStore& store, int rank) {
  return std::atoi(store.get(fmt::format("tcp/address/{}", rank), std::chrono::seconds(60)).c_str());
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(TcpUnauthorized, ConnectionsAreIgnoredAndLoggedOncePerAddress) {
  const std::string preamble = std::string("\x30\0\0\0\0\0\0\0\x01", 9) + std::string(39, '\0');
  const std::vector<std::string> texts = {
      "",
      "G",
      std::string(256, '\xff'),
      preamble,
      "LOCKSTP1" + std::string("\x01\0\0\0\0\0\0\0\0\0\0\0", 12) + std::string(64, 'm'),
      "LOCKSTP1",
      std::string(100'000, 'x')};
  testing::internal::CaptureStderr();
  FileStore store;
  std::unique_ptr<Comm> first, second;
  std::thread waiting([&] { first = join_rank(store, 0, 2); });
  const int port = port_of(store, 0);
  std::vector<std::unique_ptr<UnauthorizedClient>> clients;
  for (int i = 0; i < 400; ++i) {  // more than the listener keeps
    clients.push_back(std::make_unique<UnauthorizedClient>(port, fmt::format("127.0.7.{}", 1 + i % 2)));
    clients.back()->send(texts[static_cast<size_t>(i) % texts.size()]);
  }
  // More connections arrive all the time while the real rank connects.
  std::atomic<bool> over = false;
  std::thread flood([&] {
    while (!over) clients.push_back(std::make_unique<UnauthorizedClient>(port, "127.0.7.3"));
  });
  second = join_rank(store, 1, 2);
  waiting.join();
  over = true;
  flood.join();
  EXPECT_FALSE(UnauthorizedClient(port, "127.0.7.4").connected());  // the rank has stopped listening
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* const from : {"127.0.7.1", "127.0.7.2"})
    EXPECT_EQ(count_of(log, fmt::format("refused a connection from {} to port {}", from, port)), 1) << log;
  EXPECT_EQ(count_of(log, "127.0.0.1 "), 0) << log;

  std::thread other([&] { second->barrier(); });
  first->barrier();
  other.join();
}

TEST(TcpUnauthorized, ConnectionsToSubgroupsAreRefused) {
  FileStore store;
  std::unique_ptr<Comm> comms[2], groups[2];
  std::latch named(1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      comms[rank] = join_rank(store, rank, 2);
      if (rank == 1) named.wait();
      groups[rank] = comms[rank]->split({0, 1}, "part");
      groups[rank]->barrier();
    });
  // Rank 0 waits for rank 1, which has not called split() yet.
  store.get("tcp/split/part/0/0", std::chrono::seconds(60));
  named.count_down();
  const int port = std::atoi(store.get("tcp/part/0/0/address/0", std::chrono::seconds(60)).c_str());
  EXPECT_EQ(store.get("tcp/part/0/0/secret", std::chrono::seconds(60)).size(), 32u);
  EXPECT_NE(store.get("tcp/part/0/0/secret", std::chrono::seconds(60)),
            store.get("tcp/secret", std::chrono::seconds(60)));
  for (int i = 0; i < 20; ++i) UnauthorizedClient(port, "127.0.7.5").send(std::string(256, '\xff'));
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lockstep
