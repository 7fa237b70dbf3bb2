#include "data/data_source.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/throws.h"
#include "data/digits.h"
#include "support/http_server.h"

namespace lockstep::detail {
namespace {

TEST(MirrorSource, MirrorServesCompressedFiles) {
  ::setenv("no_proxy", "127.0.0.1", 1);
  const Digits digits;
  const HttpServer server([&](const std::string& path) -> std::string {
    if (path != "/t10k-labels-idx1-ubyte.gz") return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    const std::vector<uint8_t> body = gzip(encode_idx(digits.files[3]));
    return HttpServer::ok(std::string(body.begin(), body.end()));
  });
  const auto mirror = mirror_source(server.url(), true);
  EXPECT_EQ(mirror->name(), server.url());
  try {
    EXPECT_EQ(mirror->fetch(digits.spec.files[3], {}).bytes, digits.files[3].bytes);
  } catch (const IoError& error) {
    if (std::string(error.what()).find("no libcurl") != std::string::npos) GTEST_SKIP() << error.what();
    throw;
  }
  EXPECT_THROWS(mirror->fetch(digits.spec.files[0], {}), IoError, "HTTP 404");
}

}  // namespace
}  // namespace lockstep::detail
