// Requests are refused when their headers have arrived: what a refused client sends costs no memory, and it reads why.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "http/access.h"
#include "http/running_server.h"
#include "support/process_memory.h"
#include "support/text.h"

namespace lockstep::http {
namespace {

// A server with a token, and room for large bodies.
struct GuardedServer : RunningServer {
  explicit GuardedServer(ServerOptions options = {}) : RunningServer(std::move(options)) {
    server.set_check([](const Request& request, Response& response) {
      if (request.path == "/health" || bearer_token(request.get_header_value("Authorization")) == "secret")
        return false;
      response.set_error(401, "the token is missing or wrong");
      return true;
    });
    server.post_later("/size", size_t{64} << 20, [](const Request& request, Reply& reply) {
      Response response;
      response.set_content(fmt::format("{} bytes", request.body.size()), "text/plain");
      reply.send(std::move(response));
    });
    start();
  }
};

constexpr size_t kBody = size_t{16} << 20;

std::string post(const std::string& token, size_t length, const std::string& more = "") {
  return head("POST /size", fmt::format("Authorization: Bearer {}\r\nContent-Length: {}\r\n{}", token, length, more));
}

TEST(Admission, BodiesOfRefusedRequestsAreNotRead) {
  const GuardedServer own;
  HttpConnection client(own.port());
  EXPECT_TRUE(client.send(post("wrong", kBody)));  // and no body
  expect_contains(client.read_until("wrong\"}\n"), "HTTP/1.1 401 Unauthorized\r\n");
}

TEST(Admission, BodiesOfRefusedRequestsHoldNoMemory) {
  const GuardedServer own;
  const std::string body(kBody, 'x');
  HttpConnection(own.port()).ask(post("wrong", 4, "Connection: close\r\n") + "body");
  const int64_t before = resident_bytes();
  std::vector<std::unique_ptr<HttpConnection>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<HttpConnection>(own.port()));
    EXPECT_TRUE(clients.back()->send(post("wrong", kBody)));
    clients.back()->send(body);  // the server may close the connection before the end
  }
  EXPECT_LT(resident_bytes() - before, int64_t{16} << 20);
  for (const auto& client : clients) expect_contains(client->read_all(), "HTTP/1.1 401 Unauthorized\r\n");
}

TEST(Admission, ClientsReadTheStatusWhileTheySend) {
  const GuardedServer own;
  const std::string body(kBody, 'x');
  for (int i = 0; i < 10; ++i) {
    HttpConnection client(own.port());
    EXPECT_TRUE(client.send(post("wrong", kBody) + body));
    expect_contains(client.read_all(), "HTTP/1.1 401 Unauthorized\r\n");
    EXPECT_FALSE(client.was_reset());
  }
}

TEST(Admission, ClientsThatWaitForContinueGetTheStatus) {
  const GuardedServer own;
  const auto answer = [&](const std::string& request) {
    HttpConnection client(own.port());
    EXPECT_TRUE(client.send(request));
    return client.read_until("\r\n\r\n");
  };
  EXPECT_TRUE(answer(post("wrong", kBody, "Expect: 100-continue\r\n")).starts_with("HTTP/1.1 401 "));
  EXPECT_TRUE(answer(post("secret", kBody, "Expect: 100-Continue\r\n")).starts_with("HTTP/1.1 100 Continue\r\n"));
  EXPECT_TRUE(answer(post("secret", size_t{65} << 20, "Expect: 100-continue\r\n")).starts_with("HTTP/1.1 413 "));
  EXPECT_TRUE(answer(post("secret", kBody, "Expect: 200-ok\r\n")).starts_with("HTTP/1.1 417 "));
}

TEST(Admission, RefusedRequestsWithoutBodyKeepTheConnection) {
  const GuardedServer own;
  HttpConnection client(own.port());
  EXPECT_TRUE(client.send(head("GET /")));
  expect_contains(client.read_until("wrong\"}\n"), "HTTP/1.1 401 Unauthorized\r\n");
  EXPECT_TRUE(client.send(head("GET /", "Authorization: bearer  secret\r\n")));
  EXPECT_TRUE(client.read_until("hello").ends_with("hello"));
}

TEST(Admission, LargeBodiesOfAdmittedRequestsArrive) {
  const GuardedServer own({.bodies = kBody});
  EXPECT_TRUE(HttpConnection(own.port())
                  .ask(post("secret", kBody, "Connection: close\r\n") + std::string(kBody, 'x'))
                  .ends_with(fmt::format("{} bytes", kBody)));
}

TEST(Admission, AllBodiesTogetherAreBoundedAndTheSlowestGoesFirst) {
  const GuardedServer own({.bodies = 3 * kBody / 2});
  const std::string most(kBody - 1, 'x');
  HttpConnection slow(own.port());
  EXPECT_TRUE(slow.send(post("secret", kBody) + most));
  // The memory suffices for one of them.
  const std::string fast = HttpConnection(own.port()).ask(post("secret", kBody, "Connection: close\r\n") + most + "x");
  EXPECT_TRUE(fast.ends_with(fmt::format("{} bytes", kBody))) << fast;
  const std::string refused = slow.read_all();
  expect_contains(refused, "HTTP/1.1 503 Service Unavailable\r\n");
  expect_contains(refused, "\r\nRetry-After: 1\r\n");
  expect_contains(refused, "too many bytes of requests are in memory; try again later");
}

TEST(Admission, RequestsMustNameThisMachine) {
  RunningServer own;
  own.start();
  const auto status = [&](const std::string& host) {
    return HttpConnection(own.port()).ask("GET / HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n").substr(9, 3);
  };
  for (const char* allowed : {"localhost", "LOCALHOST", "Localhost:80", "127.0.0.1:1", "127.3.2.1", "[::1]:5"})
    EXPECT_EQ(status(fmt::format("Host: {}\r\n", allowed)), "200") << allowed;
  for (const char* other :
       {"evil.example", "127.evil.example", "localhost.evil.example", "10.0.0.1", "[::2]", "0.0.0.0"})
    EXPECT_EQ(status(fmt::format("Host: {}\r\n", other)), "421") << other;
  for (const char* malformed : {"", "a b", "a/b", "a@b", "[::1", "a:b", "a,b"})
    EXPECT_EQ(status(fmt::format("Host: {}\r\n", malformed)), "400") << malformed;
  EXPECT_EQ(status(""), "400");
  expect_contains(HttpConnection(own.port()).ask("GET / HTTP/1.1\r\nConnection: close\r\n\r\n"),
                  "the header Host is missing; HTTP/1.1 requires it");
  expect_contains(HttpConnection(own.port()).ask("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"),
                  "the Host header names another machine; send requests to 127.0.0.1 or localhost");
  EXPECT_TRUE(HttpConnection(own.port()).ask("GET / HTTP/1.0\r\n\r\n").ends_with("hello"));
}

TEST(Admission, ServersWithASecretAnswerToAnyName) {
  RunningServer own({.any_host_name = true});
  own.start();
  EXPECT_TRUE(
      HttpConnection(own.port()).ask("GET / HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n").ends_with("hello"));
}

TEST(Access, OnlyAddressesOfThisMachineAreLoopback) {
  for (const char* yes : {"localhost", "LocalHost", "127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE(is_loopback(yes)) << yes;
  for (const char* no : {"", "127.evil.example", "127.", "127.1", "0.0.0.0", "::", "::ffff:10.0.0.1", "node7"})
    EXPECT_FALSE(is_loopback(no)) << no;
}

TEST(Access, HostsArePartedFromPorts) {
  EXPECT_EQ(host_name("Node7.Example:80"), "node7.example");
  EXPECT_EQ(host_name("[FE80::1%eth0]:5"), "fe80::1%eth0");
  EXPECT_TRUE(host_is_allowed("node7:80", "Node7"));
  EXPECT_FALSE(host_is_allowed("node8", "node7"));
}

TEST(Access, TheCaseOfTheSchemeDoesNotMatter) {
  for (const char* header : {"Bearer x", "bearer x", "BEARER   x"}) EXPECT_EQ(bearer_token(header), "x");
  for (const char* header : {"Basic x", "Bearer", "Bearerx", ""}) EXPECT_EQ(bearer_token(header), "");
}

}  // namespace
}  // namespace lockstep::http
