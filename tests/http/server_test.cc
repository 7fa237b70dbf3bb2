// A server answers requests, and slow or many clients cannot keep it from that.
#include "http/server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "http/running_server.h"
#include "lockstep/error.h"
#include "support/text.h"

namespace lockstep::http {
namespace {

using std::chrono::milliseconds;

constexpr const char* kHello = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n";

TEST(HttpServer, AnswersSeveralRequestsOfAConnection) {
  for (const int threads : {1, 4}) {
    RunningServer own({.threads = threads});
    own.server.post("/echo/([a-z]+)", [](const Request& request, Response& response) {
      response.set_content(request.matches[1] + " " + request.get_param_value("x") + " " + request.body, "text/plain");
    });
    own.start();
    HttpConnection client(own.port());
    EXPECT_TRUE(client.send(head("GET /") + head("POST /echo/abc?x=7", "Content-Length: 4\r\n") + "body"));
    const std::string both = client.read_until("abc 7 body");
    EXPECT_TRUE(both.starts_with(std::string(kHello) + "\r\nhelloHTTP/1.1 200 OK\r\n")) << both;
    EXPECT_EQ(client.ask(head("HEAD /", "Connection: close\r\n")), std::string(kHello) + "Connection: close\r\n\r\n");
    EXPECT_EQ(HttpConnection(own.port()).ask("GET / HTTP/1.0\r\n\r\n"),
              std::string(kHello) + "Connection: close\r\n\r\nhello");
  }
}

TEST(HttpServer, ErrorsAreAnswers) {
  RunningServer own({.headers = {{"X-Extra", "1"}}, .help = "; see the manual"});
  own.server.get("/mistake", [](const Request&, Response&) { throw Error("x is \"2\"; give 1"); });
  own.server.get("/failure", [](const Request&, Response&) { throw std::runtime_error("disk full"); });
  own.server.post("/large", [](const Request&, Response&) {});
  own.server.set_check([](const Request& request, Response& response) {
    if (request.path != "/secret") return false;
    response.set_error(401, "the token is missing");
    return true;
  });
  own.start();
  const auto get = [&](const char* path) { return HttpConnection(own.port()).get(path); };
  expect_contains(get("/mistake"), "{\"error\":\"x is \\\"2\\\"; give 1\"}\n");
  expect_contains(get("/mistake"), "HTTP/1.1 400 Bad Request\r\n");
  expect_contains(get("/mistake"), "\r\nX-Extra: 1\r\n");
  expect_contains(get("/failure"), "HTTP/1.1 500 Internal Server Error\r\n");
  expect_contains(get("/failure"), "{\"error\":\"disk full\"}");
  expect_contains(get("/nothing%1b"), "{\"error\":\"no answer to GET /nothing\\\\x1b; see the manual\"}");
  expect_contains(get("/secret"), "HTTP/1.1 401 Unauthorized\r\n");
  expect_contains(HttpConnection(own.port()).ask("nonsense\r\n\r\n"), "HTTP/1.1 400 Bad Request\r\n");
  const std::string large =
      HttpConnection(own.port()).ask(head("POST /large", "Content-Length: 100000\r\n") + std::string(100'000, 'x'));
  expect_contains(large, "{\"error\":\"the body is longer than 4096 bytes\"}");
  int64_t mistakes = 0;
  for (const Server::Count& each : own.server.counts())
    if (each.path == "/mistake" && each.status == 400) mistakes = each.requests;
  EXPECT_EQ(mistakes, 3);
}

TEST(HttpServer, SlowRequestsEndAndHoldNoThread) {
  RunningServer own({.threads = 1, .timeout = milliseconds(300)});
  own.server.post("/echo", [](const Request&, Response&) {});
  own.start();
  HttpConnection slow(own.port()), silent(own.port());
  EXPECT_TRUE(slow.send("GET / HTTP/1.1\r\nName: "));
  EXPECT_TRUE(HttpConnection(own.port()).get("/").ends_with("hello"));
  int bytes = 0;
  while (!slow.is_readable(10) && bytes < 10'000 && slow.send("x")) ++bytes;
  EXPECT_LT(bytes, 10'000);
  expect_contains(slow.read_all(), "HTTP/1.1 408 Request Timeout\r\n");
  EXPECT_EQ(silent.read_all(), "");  // closed without an answer
  HttpConnection slow_body(own.port());
  EXPECT_TRUE(slow_body.send(head("POST /echo", "Content-Length: 4096\r\n")));
  for (bytes = 0; !slow_body.is_readable(10) && bytes < 4000 && slow_body.send("x");) ++bytes;
  expect_contains(slow_body.read_all(), "HTTP/1.1 408 Request Timeout\r\n");
}

TEST(HttpServer, ClientsThatReadSlowlyAreDisconnected) {
  RunningServer own({.threads = 1, .timeout = milliseconds(300), .slowest_client = int64_t{1} << 40});
  const std::string large(size_t{64} << 20, 'x');
  own.server.get("/large", [&](const Request&, Response& response) { response.set_content(large, "text/plain"); });
  own.start();
  HttpConnection slow(own.port());
  EXPECT_TRUE(slow.send(head("GET /large", "Connection: close\r\n")));
  EXPECT_FALSE(slow.read_until("200 OK").empty());
  EXPECT_TRUE(HttpConnection(own.port()).get("/").ends_with("hello"));  // the only thread is free
  while (slow.send("x")) ::poll(nullptr, 0, 10);                        // until the server has closed the connection
  EXPECT_LT(slow.read_all().size(), large.size());
}

TEST(HttpServer, ClientsThatWaitGetContinue) {
  RunningServer own;
  own.server.post("/",
                  [](const Request& request, Response& response) { response.set_content(request.body, "text/plain"); });
  own.start();
  HttpConnection client(own.port());
  EXPECT_TRUE(client.send(head("POST /", "Expect: 100-continue\r\nContent-Length: 4\r\nConnection: close\r\n")));
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_TRUE(client.ask("body").ends_with("\r\n\r\nbody"));
}

TEST(HttpServer, StopAnswersRequestsInProgressAndReturns) {
  RunningServer own;
  Signal begun, may_end;
  own.server.get("/wait", [&](const Request&, Response& response) {
    begun.set();
    EXPECT_TRUE(may_end.wait());
    response.set_content("done", "text/plain");
  });
  std::thread thread([&] { own.server.run(); });
  HttpConnection idle(own.port()), busy(own.port());
  EXPECT_TRUE(busy.send(head("GET /wait")));
  ASSERT_TRUE(begun.wait());
  own.server.stop();
  EXPECT_TRUE(own.server.is_stopping());
  may_end.set();
  EXPECT_TRUE(busy.read_all().ends_with("\r\nConnection: close\r\n\r\ndone"));
  EXPECT_EQ(idle.read_all(), "");
  thread.join();
}

TEST(HttpServer, AddressesThatCannotBeUsedAreErrors) {
  const Server first({.name = "test"});
  const auto message_of = [](const ServerOptions& options) {
    try {
      const Server server(options);
      return std::string("no error");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(
      message_of({.name = "train", .port = first.port(), .port_flag = "--metrics-port", .host_flag = "--metrics-host"}),
      fmt::format("train: cannot listen on 127.0.0.1:{}: Address already in use; choose another --metrics-port or "
                  "--metrics-host",
                  first.port()));
  expect_contains(
      message_of({.name = "test", .host = "192.0.2.1"}),
      "test: cannot listen on 192.0.2.1:0: Cannot assign requested address; choose another --port or --host");
}

}  // namespace
}  // namespace lockstep::http
