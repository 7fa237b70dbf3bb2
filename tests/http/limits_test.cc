// Clients that occupy a server do not keep it from answering others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <netinet/in.h>

#include <thread>

#include "http/connection.h"
#include "http/running_server.h"
#include "support/text.h"

namespace lockstep::http {
namespace {

using std::chrono::milliseconds;

using Clients = std::vector<std::unique_ptr<HttpConnection>>;

Clients connect(int port, int count) {
  Clients out;
  for (int i = 0; i < count; ++i) out.push_back(std::make_unique<HttpConnection>(port));
  return out;
}

std::string get_health(int port) { return HttpConnection(port).get("/health"); }

TEST(HttpLimits, SilentConnectionsDoNotLockOut) {
  RunningServer own({.connections = 16});
  own.start();
  const Clients silent = connect(own.port(), 200);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(get_health(own.port()).ends_with("ok"));
}

TEST(HttpLimits, RequestsThatDoNotEndDoNotLockOut) {
  RunningServer own({.connections = 16});
  own.server.post_later("/body", 100, [](const Request&, Reply&) {});
  own.start();
  const Clients slow = connect(own.port(), 100);
  for (size_t i = 0; i < slow.size(); ++i)
    slow[i]->send(i % 2 == 0 ? "GET / HTTP/1.1\r\nHost: l" : head("POST /body", "Content-Length: 100\r\n") + "body");
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(get_health(own.port()).ends_with("ok"));
}

// They are closed when they have not read for a second.
TEST(HttpLimits, ClientsThatDoNotReadDoNotLockOut) {
  RunningServer own({.connections = 4});
  const std::string large(size_t{16} << 20, 'x');
  own.server.get("/large", [&](const Request&, Response& response) { response.set_content(large, "text/plain"); });
  own.start();
  const Clients deaf = connect(own.port(), 4);
  for (const auto& each : deaf) EXPECT_TRUE(each->send(head("GET /large")));
  std::string answer;
  for (int i = 0; i < 600 && !answer.ends_with("ok"); ++i) {
    answer = get_health(own.port());
    if (!answer.ends_with("ok")) expect_contains(answer, "HTTP/1.1 503 ");
    if (!answer.ends_with("ok")) ::poll(nullptr, 0, 100);
  }
  EXPECT_TRUE(answer.ends_with("ok"));
}

TEST(HttpLimits, ServedConnectionsStayWhileOthersAreSilent) {
  RunningServer own({.connections = 8});
  own.start();
  HttpConnection served(own.port());
  EXPECT_TRUE(served.send(head("GET /")));
  served.read_until("hello");
  const Clients silent = connect(own.port(), 100);
  EXPECT_TRUE(get_health(own.port()).ends_with("ok"));
  EXPECT_TRUE(served.send(head("GET /")));
  EXPECT_TRUE(served.read_until("hello").ends_with("hello"));
}

TEST(HttpLimits, IdleConnectionsMakeRoomAndBusyOnesStay) {
  RunningServer own({.connections = 2});
  Signal begun, may_end;
  own.server.get("/wait", [&](const Request&, Response& response) {
    begun.set();
    EXPECT_TRUE(may_end.wait());
    response.set_content("done", "text/plain");
  });
  own.start();
  HttpConnection busy(own.port()), idle(own.port());
  EXPECT_TRUE(busy.send(head("GET /wait")));
  ASSERT_TRUE(begun.wait());
  EXPECT_TRUE(idle.send(head("GET /")));
  idle.read_until("hello");
  EXPECT_TRUE(get_health(own.port()).ends_with("ok"));
  EXPECT_EQ(idle.read_all(), "");
  may_end.set();
  EXPECT_TRUE(busy.read_until("done").ends_with("done"));
}

TEST(HttpLimits, AFullServerSaysSoAndTheClientReadsIt) {
  RunningServer own({.threads = 2, .connections = 2});
  Signal may_end;
  own.server.get("/wait", [&](const Request&, Response& response) {
    EXPECT_TRUE(may_end.wait());
    response.set_content("done", "text/plain");
  });
  own.start();
  const Clients busy = connect(own.port(), 2);
  for (const auto& each : busy) EXPECT_TRUE(each->send(head("GET /wait")));
  while (get_health(own.port()).ends_with("ok")) {  // until both are being answered
  }
  for (int i = 0; i < 100; ++i) {
    HttpConnection refused(own.port());
    refused.send(head("GET /", "X-Long: " + std::string(10'000, 'x') + "\r\n"));
    const std::string answer = refused.read_all();
    expect_contains(answer, "HTTP/1.1 503 Service Unavailable\r\n");
    expect_contains(answer, "\r\nRetry-After: 1\r\n");
    expect_contains(answer, "{\"error\":\"2 connections are open already; try again later\"}");
    EXPECT_FALSE(refused.was_reset());
  }
  may_end.set();
  for (const auto& each : busy) EXPECT_TRUE(each->read_until("done").ends_with("done"));
}

// The reading thread answers them, though every other thread is busy and many requests wait.
TEST(HttpLimits, QuickAnswersDoNotWaitForOthers) {
  RunningServer own({.threads = 1});
  Signal may_end;
  own.server.get("/wait", [&](const Request&, Response& response) {
    EXPECT_TRUE(may_end.wait());
    response.set_content("done", "text/plain");
  });
  own.start();
  const Clients busy = connect(own.port(), 40);
  for (const auto& each : busy) EXPECT_TRUE(each->send(head("GET /wait")));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(get_health(own.port()).ends_with("ok"));
  may_end.set();
  for (const auto& each : busy) EXPECT_TRUE(each->read_until("done").ends_with("done"));
}

// Many clients with open connections: none is closed under a request unless it was announced.
TEST(HttpLimits, CrowdedServersAnnounceThatTheyClose) {
  RunningServer own({.connections = 16});
  own.start();
  int64_t announced = 0, unannounced = 0;
  const auto ask_often = [&] {
    int64_t closes = 0, cuts = 0;
    std::unique_ptr<HttpConnection> client;
    for (int i = 0; i < 200; ++i) {
      if (!client) client = std::make_unique<HttpConnection>(own.port());
      const std::string answer = client->send(head("GET /health")) ? client->read_until("\r\n\r\nok") : "";
      if (!answer.ends_with("ok")) {  // it made room for another one at that moment: asks again, as clients do
        client.reset();
        ++cuts;
        continue;
      }
      if (answer.find("Connection: close") == answer.npos) continue;
      client.reset();
      ++closes;
    }
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    announced += closes;
    unannounced += cuts;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 15; ++i) threads.emplace_back(ask_often);
  for (std::thread& each : threads) each.join();
  EXPECT_GT(announced, 0);
  EXPECT_LE(20 * unannounced, announced) << unannounced << " of " << announced;
}

sockaddr_storage address_of(const char* text) {
  sockaddr_storage out = {};
  auto& four = reinterpret_cast<sockaddr_in&>(out);
  auto& six = reinterpret_cast<sockaddr_in6&>(out);
  if (::inet_pton(AF_INET, text, &four.sin_addr) == 1)
    out.ss_family = AF_INET;
  else if (::inet_pton(AF_INET6, text, &six.sin6_addr) == 1)
    out.ss_family = AF_INET6;
  return out;
}

TEST(HttpLimits, AnAddressIsAHost) {
  Peers peers;
  const auto same = [&](const char* a, const char* b) { return &peers.of(address_of(a)) == &peers.of(address_of(b)); };
  EXPECT_TRUE(same("10.0.0.1", "::ffff:10.0.0.1"));
  EXPECT_TRUE(same("2001:db8::1", "2001:db8::ffff:2"));
  EXPECT_FALSE(same("10.0.0.1", "10.0.0.2"));
  EXPECT_FALSE(same("2001:db8::1", "2001:db8:0:1::1"));
  EXPECT_FALSE(same("0.0.0.1", "0:0:0:1::"));
}

// An address with many connections gives way to one with few, whatever they do.
TEST(HttpLimits, TheAddressWithTheMostConnectionsMakesRoom) {
  RunningServer own({.host = "0.0.0.0", .connections = 8});
  own.start();
  Clients many;
  for (int i = 0; i < 7; ++i) many.push_back(std::make_unique<HttpConnection>(own.port()));
  for (const auto& each : many) {
    EXPECT_TRUE(each->send(head("GET /")));
    each->read_until("hello");
  }
  HttpConnection other(own.port(), false, "127.0.0.2");
  EXPECT_TRUE(other.send("GET / HTTP/1.1\r\n"));  // unproved, but the only one of its address
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(get_health(own.port()).ends_with("ok"));
  EXPECT_TRUE(other.send("Host: x\r\n\r\n"));
  EXPECT_TRUE(other.read_until("hello").ends_with("hello"));
}

}  // namespace
}  // namespace lockstep::http
