#include "data/download.h"

#include <cstdlib>

#include "base/throws.h"
#include "data/data_source.h"
#include "data/digits.h"
#include "data/http_server.h"

namespace lockstep::detail {
namespace {

class Download : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("no_proxy", "127.0.0.1", 1);
    try {
      download(server_.url() + "ok", {.max_bytes = 100, .allow_plain_http = true});
    } catch (const IoError& error) {
      if (std::string(error.what()).find("no libcurl") != std::string::npos) GTEST_SKIP() << error.what();
      throw;
    }
  }
  std::vector<uint8_t> get(const std::string& path, int64_t max_bytes = 100) {
    return download(server_.url() + path,
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

TEST_F(Download, ReturnsTheBodyAndFollowsRedirects) {
  const std::vector<uint8_t> hello = {'h', 'e', 'l', 'l', 'o'};
  EXPECT_EQ(get("ok"), hello);
  EXPECT_EQ(get("redirect"), hello);
}

TEST_F(Download, ReportsProgress) {
  int64_t bytes = 0, total = 0;
  download(server_.url() + "ok", {.max_bytes = 100, .allow_plain_http = true, .progress = [&](int64_t b, int64_t t) {
                                    bytes = b;
                                    total = t;
                                  }});
  EXPECT_EQ(bytes, 5);
  EXPECT_EQ(total, 5);
}

TEST_F(Download, FailuresAreReportedWithTheReason) {
  EXPECT_THROWS(get("nothing"), IoError, "HTTP 404");
  EXPECT_THROWS(get("long"), IoError, "longer than the maximum of 100 bytes");
  EXPECT_THROWS(get("short"), IoError, "45 bytes");
  EXPECT_THROWS(get("loop"), IoError, "redirects");
}

TEST_F(Download, StalledServerTimesOut) { EXPECT_THROWS(get("stall"), IoError, "Operation too slow"); }

TEST_F(Download, PlainHttpIsRejectedUnlessAllowed) {
  EXPECT_THROWS(download(server_.url() + "ok", {.max_bytes = 100}), IoError, "http");
}

TEST_F(Download, RefusedConnectionFailsImmediately) {
  EXPECT_THROWS(download("https://127.0.0.1:1/x", {.max_bytes = 100}), IoError, "127.0.0.1 port 1");
}

TEST_F(Download, MirrorServesCompressedFiles) {
  const Digits digits;
  const HttpServer server([&](const std::string& path) -> std::string {
    if (path != "/t10k-labels-idx1-ubyte.gz") return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    const std::vector<uint8_t> body = gzip(encode_idx(digits.files[3]));
    return HttpServer::ok(std::string(body.begin(), body.end()));
  });
  const auto mirror = mirror_source(server.url(), true);
  EXPECT_EQ(mirror->name(), server.url());
  EXPECT_EQ(mirror->fetch(digits.spec.files[3], {}).bytes, digits.files[3].bytes);
  EXPECT_THROWS(mirror->fetch(digits.spec.files[0], {}), IoError, "HTTP 404");
}

}  // namespace
}  // namespace lockstep::detail
