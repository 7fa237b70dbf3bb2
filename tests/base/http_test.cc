#include "base/os/http.h"

#include <cstdlib>

#include "base/throws.h"
#include "lockstep/error.h"
#include "support/http_server.h"

namespace lockstep {
namespace {

class HttpGet : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("no_proxy", "127.0.0.1", 1);
    try {
      http_get(server_.url() + "ok", {.max_bytes = 100, .allow_plain_http = true});
    } catch (const IoError& error) {
      if (std::string(error.what()).find("no libcurl") != std::string::npos) GTEST_SKIP() << error.what();
      throw;
    }
  }
  std::vector<uint8_t> get(const std::string& path, int64_t max_bytes = 100) {
    return http_get(server_.url() + path,
                    {.max_bytes = max_bytes, .stall_timeout = std::chrono::seconds(1), .allow_plain_http = true});
  }
  static std::string answer(const std::string& path) {
    if (path == "/ok") return HttpServer::ok("hello");
    if (path == "/redirect")
      return "HTTP/1.1 302 Found\r\nLocation: /ok\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    if (path == "/loop")
      return "HTTP/1.1 302 Found\r\nLocation: /loop\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    if (path == "/long") return HttpServer::ok(std::string(101, 'x'));
    if (path == "/short") return "HTTP/1.1 200 OK\r\nContent-Length: 50\r\nConnection: close\r\n\r\nhello";
    if (path == "/stall") return "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello" + std::string(HttpServer::kStall);
    return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  }
  HttpServer server_{answer};
};

TEST_F(HttpGet, ReturnsTheBodyAndFollowsRedirects) {
  const std::vector<uint8_t> hello = {'h', 'e', 'l', 'l', 'o'};
  EXPECT_EQ(get("ok"), hello);
  EXPECT_EQ(get("redirect"), hello);
}

TEST_F(HttpGet, ReportsProgress) {
  int64_t bytes = 0, total = 0;
  http_get(server_.url() + "ok", {.max_bytes = 100, .allow_plain_http = true, .progress = [&](int64_t b, int64_t t) {
                                    bytes = b;
                                    total = t;
                                  }});
  EXPECT_EQ(bytes, 5);
  EXPECT_EQ(total, 5);
}

TEST_F(HttpGet, FailuresAreReportedWithTheReason) {
  EXPECT_THROWS(get("nothing"), IoError, "HTTP 404");
  EXPECT_THROWS(get("long"), IoError, "longer than the maximum of 100 bytes");
  EXPECT_THROWS(get("short"), IoError, "45 bytes");
  EXPECT_THROWS(get("loop"), IoError, "redirects");
}

TEST_F(HttpGet, StalledServerTimesOut) { EXPECT_THROWS(get("stall"), IoError, "Operation too slow"); }

TEST_F(HttpGet, PlainHttpIsRejectedUnlessAllowed) {
  EXPECT_THROWS(http_get(server_.url() + "ok", {.max_bytes = 100}), IoError, "http");
}

TEST_F(HttpGet, RefusedConnectionFailsImmediately) {
  EXPECT_THROWS(http_get("https://127.0.0.1:1/x", {.max_bytes = 100}), IoError, "127.0.0.1 port 1");
}

}  // namespace
}  // namespace lockstep
