// Floods of connections without the job's token: the job keeps working, its memory stays bounded, and the log names
// the address once.
#ifdef LOCKSTEP_WITH_GRPC

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>

#include "cluster/control_job.h"
#include "cluster/grpc/auth_listener.h"
#include "cluster/grpc/connect_pass.h"
#include "cluster/grpc/tls_handshakes.h"
#include "cluster/sockets.h"

namespace lockstep {
namespace {

// A value of /proc/self/status in KiB.
long status_kib(const std::string& name) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name + ":")) return std::atol(line.c_str() + name.size() + 1);
  return 0;
}

// The peak growth of this process's memory since construction.
class MemoryGrowth {
 public:
  MemoryGrowth() : before_(status_kib("VmRSS")) { std::ofstream("/proc/self/clear_refs") << "5"; }  // resets VmHWM
  long mib() const { return (status_kib("VmHWM") - before_) / 1024; }

 private:
  const long before_;
};

std::string frame(int type, int flags, uint32_t stream, const std::string& payload) {
  std::string out;
  for (int shift : {16, 8, 0}) out += static_cast<char>(payload.size() >> shift & 0xff);
  out += static_cast<char>(type);
  out += static_cast<char>(flags);
  for (int shift : {24, 16, 8, 0}) out += static_cast<char>(stream >> shift & 0xff);
  return out + payload;
}

const std::string kHttp2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, "");

// The headers of a call of the coordinator, without Huffman codes.
std::string call_headers(uint32_t stream) {
  const auto literal = [](const std::string& text) { return static_cast<char>(text.size()) + text; };
  std::string block = "\x83\x86";                              // POST, http
  block += '\x04' + literal("/lockstep.control.Control/Ask");  // :path
  block += '\x01' + literal("x");                              // :authority
  block += std::string(1, '\0') + literal("te") + literal("trailers");
  block += std::string(1, '\0') + literal("content-type") + literal("application/grpc");
  return frame(1, 4, stream, block);
}

void wait_room(TestSocket& socket) {
  pollfd waiting = {.fd = socket.fd(), .events = POLLOUT, .revents = 0};
  ::poll(&waiting, 1, 1000);
}

// Sends until the peer closes, or all bytes were sent.
bool send_all(TestSocket& socket, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    wait_room(socket);
    const ssize_t count = ::send(socket.fd(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count <= 0) return false;
    at += static_cast<size_t>(count);
  }
  return true;
}

// Returns connections that stay open until the test ends.
using Flood = std::function<std::vector<TestSocket>(int port)>;

std::vector<TestSocket> reset_rapidly(int port) {
  constexpr int kConnections = 100, kPairs = 150'000, kAtOnce = 1000;
  for (int connection = 0, sent = 0; connection < kConnections && sent < kPairs; ++connection) {
    TestSocket socket;
    if (!socket.connect(port) || !send_all(socket, kHttp2)) continue;
    for (uint32_t stream = 1; sent < kPairs; sent += kAtOnce) {
      std::string bytes;
      for (int pair = 0; pair < kAtOnce; ++pair, stream += 2)
        bytes += call_headers(stream) + frame(3, 0, stream, std::string(4, '\x08'));
      if (!send_all(socket, bytes)) break;
    }
  }
  return {};
}

std::vector<TestSocket> announce_bodies(int port) {
  std::vector<TestSocket> sockets(4);
  const std::string part(16384, 'x');
  for (TestSocket& socket : sockets) {
    if (!socket.connect(port) || !send_all(socket, kHttp2)) continue;
    for (uint32_t stream = 1; stream < 200; stream += 2) {
      std::string bytes = call_headers(stream);
      bytes += frame(0, 0, stream, std::string("\0\0\x40\0\0", 5) + part.substr(5));  // a message of 4 MiB begins
      for (int i = 1; i < 4; ++i) bytes += frame(0, 0, stream, part);
      if (!send_all(socket, bytes)) break;
    }
  }
  return sockets;
}

std::vector<TestSocket> begin_tls(int port) {
  std::vector<TestSocket> sockets(400);
  for (size_t i = 0; i < sockets.size(); ++i)
    if (sockets[i].connect(port)) sockets[i].send(std::string("\x16\x03\x01\x40\x00\x01\x00", 7));
  return sockets;
}

std::vector<TestSocket> begin_requests(int port) {
  std::vector<TestSocket> sockets(400);
  for (TestSocket& socket : sockets)
    if (socket.connect(port)) socket.send("CONNECT lockstep/tls/0123");
  return sockets;
}

std::vector<TestSocket> stay_idle(int port) {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<TestSocket> sockets(2000);
  for (TestSocket& socket : sockets) socket.connect(port);
  return sockets;
}

struct Case {
  const char* name;
  Flood flood;
};

class Floods : public testing::TestWithParam<std::tuple<Case, bool>> {};

TEST_P(Floods, WithoutATokenDoNotAffectTheJob) {
  const auto& [what, use_tls] = GetParam();
  ControlJob::Options options{.count = 2, .transport = Transport::network, .not_started = 1};
  options.heartbeat_timeout = 10s;
  options.use_tls = use_tls;
  ControlJob job(options);
  const int port = job.port();
  const MemoryGrowth growth;
  const auto flooding = std::async(std::launch::async, what.flood, port);
  const auto worker = job.make(1);
  job.wait();
  std::vector<std::string> refused;
  const auto deadline = std::chrono::steady_clock::now() + kGenerous;
  do {
    on_all(2, [&](int i) { (i == 0 ? job[0] : *worker).barrier("x", kGenerous); });
    for (const std::string& line : job.lines.take())
      if (line.find("refused a connection from 127.0.0.1: ") != line.npos) refused.push_back(line);
  } while ((flooding.wait_for(0s) != std::future_status::ready || refused.empty()) &&
           std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(job[0].failure(), std::nullopt);
  EXPECT_EQ(worker->failure(), std::nullopt);
  on_all(2, [&](int i) { (i == 0 ? job[0] : *worker).shutdown(kGenerous); });
  EXPECT_LT(growth.mib(), 64);
  EXPECT_EQ(refused.size(), 1u) << testing::PrintToString(refused);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Floods,
    testing::Combine(testing::Values(Case{"RapidReset", reset_rapidly}, Case{"UnfinishedBodies", announce_bodies},
                                     Case{"UnfinishedTlsHellos", begin_tls}, Case{"UnfinishedRequests", begin_requests},
                                     Case{"IdleConnections", stay_idle}),
                     testing::Bool()),
    [](const auto& each) {
      return std::string(std::get<0>(each.param).name) + (std::get<1>(each.param) ? "" : "WithoutTls");
    });

// A connection to the listener from another address of the loopback.
TestSocket connected_from(const char* number, int port) {
  TestSocket socket;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, number, &address.sin_addr);
  EXPECT_EQ(::bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_TRUE(socket.connect(port));
  return socket;
}

TEST(AuthListener, AddressWithManyConnectionsDoesNotLockOutAnother) {
  Lines lines;
  const Security security = make_security({.token = kTestToken});
  AuthListener listener({.ips = {"127.0.0.1"}, .security = security, .log = lines.log()});
  std::promise<int> admitted;
  listener.start([&](int, int fd) { admitted.set_value(fd); });
  std::vector<TestSocket> many;
  const auto crowd = [&](int count) {
    for (int i = 0; i < count; ++i) many.push_back(connected_from("127.0.0.2", listener.port()));
  };
  crowd(256);
  TestSocket quiet = connected_from("127.0.0.3", listener.port());
  crowd(20);
  EXPECT_TRUE(many.front().wait_closed(60'000));
  const std::string challenge = ask_challenge("127.0.0.1", listener.port(), kGenerous);
  ASSERT_TRUE(quiet.send("CONNECT " + connect_argument(security, challenge) + " HTTP/1.0\r\n\r\n"));
  auto future = admitted.get_future();
  ASSERT_EQ(future.wait_for(kGenerous), std::future_status::ready);
  const TestSocket own(future.get());
  const std::vector<std::string> logged = lines.take();
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_NE(logged[0].find("refused a connection from 127.0.0.2: 256 of its connections have not presented this job's "
                           "token, 257 in total; at most 256 are allowed (logged once per address)"),
            std::string::npos)
      << logged[0];
}

// The connections that are handed to the server count until a call arrives over them.
TEST(AuthListener, UnfinishedHandshakesAreLimited) {
  Lines lines;
  const Security security = make_security({.token = kTestToken});
  AuthListener listener({.ips = {"127.0.0.1"}, .security = security, .log = lines.log()});
  constexpr size_t kMany = 530;
  std::mutex mutex;
  std::vector<TestSocket> admitted;
  std::promise<void> all;
  listener.start([&](int, int fd) {
    const std::lock_guard lock(mutex);
    admitted.emplace_back(fd);
    if (admitted.size() == kMany + 1) all.set_value();
  });
  const std::string challenge = ask_challenge("127.0.0.1", listener.port(), kGenerous);
  const auto present = [&](TestSocket& socket) {
    ASSERT_TRUE(socket.send("CONNECT " + connect_argument(security, challenge) + " HTTP/1.0\r\n\r\n"));
  };
  TestSocket quiet = connected_from("127.0.0.3", listener.port());
  present(quiet);
  std::vector<TestSocket> many;
  for (size_t i = 0; i < kMany; ++i) {
    many.push_back(connected_from("127.0.0.2", listener.port()));
    present(many.back());
  }
  ASSERT_EQ(all.get_future().wait_for(kGenerous), std::future_status::ready);
  EXPECT_TRUE(many.front().wait_closed(60'000));
  EXPECT_FALSE(many.back().wait_closed(0));
  EXPECT_FALSE(quiet.wait_closed(0));
  const std::vector<std::string> logged = lines.take();
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_NE(logged[0].find("refused a connection from 127.0.0.2: 512 of its connections have not finished their TLS "
                           "handshake; at most 512 of all addresses are allowed (logged once per address)"),
            std::string::npos)
      << logged[0];
}

TEST(TlsHandshakes, AreForgottenWhenOverOrClosed) {
  TestSocket listening;
  const int port = listening.listen();
  TlsHandshakes handshakes(4);
  std::string ended;
  std::vector<TestSocket> sockets;
  for (int i = 0; i < 4; ++i) {
    sockets.emplace_back();
    ASSERT_TRUE(sockets.back().connect(port));
    EXPECT_EQ(handshakes.add(sockets.back().fd(), "10.0.0.7", 100 + i, ended), 0u);
  }
  handshakes.mark_over("10.0.0.7", 101);
  handshakes.mark_over("10.0.0.8", 102);
  EXPECT_EQ(handshakes.count(), 3u);
  ::shutdown(sockets[2].fd(), SHUT_RDWR);  // as the server does
  EXPECT_EQ(handshakes.add(sockets[3].fd(), "10.0.0.9", 1, ended), 0u);
  EXPECT_EQ(handshakes.count(), 3u);
}

TEST(ConnectGate, StatusDistinguishesTokenSecurityAndReplay) {
  const Security security = make_security({.token = kTestToken}),
                 plain = make_security({.token = kTestToken, .tls = false}),
                 other = make_security({.token = kTestToken + "x"});
  ConnectGate gate(security);
  const auto request = [](const std::string& shown) { return "CONNECT " + shown + " HTTP/1.0\r\nHost: x\r\n\r\n"; };
  const auto challenge_of = [](const ConnectGate& of) {
    const std::string answer = of.answer(connect_status::kChallenge);
    const size_t begin = answer.find("Lockstep-Challenge: ") + 20;
    return answer.substr(begin, answer.find("\r\n", begin) - begin);
  };
  const std::string challenge = challenge_of(gate), good = request(connect_argument(security, challenge));
  std::string changed = good;
  changed[good.find(" HTTP/") - 1] = changed[good.find(" HTTP/") - 1] == '0' ? '1' : '0';
  struct Row {
    std::string request;
    int status;
  };
  const Row rows[] = {
      {request("lockstep/challenge"), connect_status::kChallenge},
      {changed, connect_status::kWrongToken},
      {good, connect_status::kAdmitted},
      {good, connect_status::kChallenge},
      {request(connect_argument(security, std::string(64, '0'))), connect_status::kChallenge},
      {request(connect_argument(plain, challenge)), connect_status::kOtherSecurity},
      {request(connect_argument(other, challenge)), connect_status::kWrongToken},
      {request("lockstep/tls/" + challenge + "/1/"), connect_status::kWrongToken},
      {request("lockstep/tls/" + challenge + "/1/2"), connect_status::kWrongToken},
      {request("lockstep/tls/0123"), connect_status::kMalformed},
      {request("lockstep//0123/1/2"), connect_status::kMalformed},
      {request("example.com:443"), connect_status::kMalformed},
      {request(""), connect_status::kMalformed},
      {"CONNECT HTTP/1.0", connect_status::kMalformed},
      {"GET / HTTP/1.1\r\n\r\n", connect_status::kMalformed},
      {"", connect_status::kMalformed},
  };
  for (const Row& row : rows) EXPECT_EQ(gate.judge(row.request), row.status) << row.request;

  ConnectGate forgetful(security, 2);
  const std::string first = challenge_of(forgetful), once = request(connect_argument(security, first));
  EXPECT_EQ(forgetful.judge(once), connect_status::kAdmitted);
  EXPECT_EQ(forgetful.judge(request(connect_argument(security, first))), connect_status::kAdmitted);
  EXPECT_NE(challenge_of(forgetful), first);
  EXPECT_EQ(forgetful.judge(once), connect_status::kChallenge) << "its nonce is forgotten, but not its challenge";
}

}  // namespace
}  // namespace lockstep

#endif
