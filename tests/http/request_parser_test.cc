// Requests are read from bytes in any pieces, and everything that a client chooses is bounded.
#include "http/request_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lockstep::http {
namespace {

// The next complete request; none if bytes are missing.
std::optional<Request> next(RequestParser& parser, size_t max_body) {
  for (;;) {
    switch (parser.read()) {
      case RequestParser::Step::head:
        parser.set_max_body(max_body);
        break;
      case RequestParser::Step::complete:
        return parser.take();
      case RequestParser::Step::more:
        return std::nullopt;
    }
  }
}

std::vector<Request> requests_of(std::string_view text, size_t piece, size_t max_body = 1000) {
  RequestParser parser;
  std::vector<Request> out;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    parser.append(text.substr(0, piece));
    while (std::optional<Request> request = next(parser, max_body)) out.push_back(std::move(*request));
  }
  EXPECT_FALSE(parser.has_begun());
  return out;
}

int status_of(const std::string& text, size_t max_body = 1000) {
  RequestParser parser;
  parser.append(text);
  try {
    while (next(parser, max_body)) {
    }
    return 200;
  } catch (const BadRequest& error) {
    EXPECT_STRNE(error.what(), "");
    return error.status;
  }
}

TEST(RequestParser, PiecesOfAnySizeGiveTheSameRequests) {
  const std::string text =
      "POST /a%20b/c?x=1&y=a+b%26&x=2&z HTTP/1.1\r\nHost: node\r\nContent-Length: 5\r\nX-Two:  1\t\r\nx-two: "
      "2\r\n\r\nhello"
      "\r\nGET / HTTP/1.0\r\n\r\n"
      "PUT /chunks HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\nA;name=x\r\n0123456789\r\n0\r\n\r\n"
      "HEAD /end HTTP/1.1\r\nConnection: close\r\n\r\n";
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, text.size()}) {
    const std::vector<Request> all = requests_of(text, piece);
    ASSERT_EQ(all.size(), 4u) << piece;
    EXPECT_EQ(all[0].method, "POST");
    EXPECT_EQ(all[0].path, "/a b/c");
    EXPECT_EQ(all[0].body, "hello");
    EXPECT_EQ(all[0].get_param_value("x"), "1");
    EXPECT_EQ(all[0].get_param_value("y"), "a b&");
    EXPECT_TRUE(all[0].has_param("z"));
    EXPECT_FALSE(all[0].has_param("w"));
    EXPECT_EQ(all[0].get_header_value("HOST"), "node");
    EXPECT_EQ(all[0].get_header_value("X-Two"), "1, 2");
    EXPECT_TRUE(all[0].keep_alive);
    EXPECT_EQ(all[1].path, "/");
    EXPECT_FALSE(all[1].keep_alive);
    EXPECT_FALSE(all[1].takes_chunks);
    EXPECT_EQ(all[2].body, "abc0123456789");
    EXPECT_EQ(all[3].method, "HEAD");
    EXPECT_FALSE(all[3].keep_alive);
  }
}

TEST(RequestParser, WrongRequestsAreRefused) {
  const std::pair<const char*, int> cases[] = {
      {"GET /\r\n\r\n", 400},
      {"GET / HTTP/2\r\n\r\n", 505},
      {"G T / HTTP/1.1\r\n\r\n", 400},
      {"GET http://node/ HTTP/1.1\r\n\r\n", 400},
      {"GET /a b HTTP/1.1\r\n\r\n", 400},
      {"GET /\x01 HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nName : x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nA: x\r\n folded: y\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nA: x\ny: z\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 5x\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\nTransfer-Encoding:\r\nContent-Length: 5\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding:\r\n\r\n", 501},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length:\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nExpect: more\r\n\r\n", 417},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;a\nb\r\nx\r\n", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;a\rb\r\nx\r\n", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\nx\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3E9\r\n", 413},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n", 413},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n", 413},
  };
  for (const auto& [text, status] : cases) EXPECT_EQ(status_of(text), status) << text;
}

TEST(RequestParser, SizesAreBounded) {
  const std::string line = "GET / HTTP/1.1\r\n", longest(RequestParser::kMaxHeadBytes, 'a');
  EXPECT_EQ(status_of(longest), 431);
  EXPECT_EQ(status_of("GET /" + longest + " HTTP/1.1\r\n\r\n"), 431);
  EXPECT_EQ(status_of(line + "A: " + longest + "\r\n\r\n"), 431);
  std::string headers;
  for (size_t i = 0; i < RequestParser::kMaxHeaders; ++i) headers += fmt::format("a{}: x\r\n", i);
  EXPECT_EQ(status_of(line + headers + "\r\n"), 200);
  EXPECT_EQ(status_of(line + headers + "b: x\r\n\r\n"), 431);
  const std::string chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(status_of(chunked + std::string(1024, '0')), 400);
  std::string chunks;
  for (int i = 0; i < 1001; ++i) chunks += "1\r\nx\r\n";
  EXPECT_EQ(status_of(chunked + chunks), 413);
}

TEST(RequestParser, OneContinueIsSentToClientsThatWait) {
  RequestParser parser;
  parser.append("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_FALSE(next(parser, 1000));
  EXPECT_EQ(parser.body_bytes(), 3u);
  EXPECT_TRUE(parser.should_continue());
  EXPECT_FALSE(parser.should_continue());
  parser.append("abc");
  EXPECT_EQ(next(parser, 1000)->body, "abc");
}

TEST(RequestParser, HeadersAreKnownBeforeTheBody) {
  RequestParser parser;
  parser.append("POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n\r\n");
  EXPECT_EQ(parser.read(), RequestParser::Step::head);
  EXPECT_EQ(parser.request().path, "/a");
  EXPECT_EQ(parser.request().body, "");
  EXPECT_TRUE(parser.has_body());
  parser.set_max_body(3);
  EXPECT_EQ(parser.read(), RequestParser::Step::complete);
  EXPECT_EQ(parser.take().body, "abc");
  EXPECT_EQ(parser.read(), RequestParser::Step::head);
  EXPECT_FALSE(parser.has_body());
  EXPECT_EQ(parser.take().path, "/b");  // without a body it need not be read on
  EXPECT_EQ(parser.read(), RequestParser::Step::more);
  EXPECT_FALSE(parser.has_begun());
}

TEST(RequestParser, MemoryGrowsWithWhatHasArrived) {
  RequestParser parser;
  parser.append("POST /a HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\nabc");
  EXPECT_EQ(parser.read(), RequestParser::Step::head);
  parser.set_max_body(1'000'000'000);
  EXPECT_EQ(parser.read(), RequestParser::Step::more);
  EXPECT_LT(parser.request().body.capacity(), 1000u);
  EXPECT_EQ(parser.body_bytes(), 1'000'000'000u);
}

TEST(RequestParser, AnyCloseOfTheListEndsTheConnection) {
  for (const char* value : {"close", "Close", "keep-alive, close", "x ,\tCLOSE"})
    EXPECT_FALSE(requests_of(fmt::format("GET / HTTP/1.1\r\nConnection: {}\r\n\r\n", value), 100)[0].keep_alive);
  for (const char* value : {"keep-alive", "closed", ""})
    EXPECT_TRUE(requests_of(fmt::format("GET / HTTP/1.1\r\nConnection: {}\r\n\r\n", value), 100)[0].keep_alive);
}

TEST(RequestParser, IncompleteEscapesStay) {
  EXPECT_EQ(percent_decoded("%41%4a%zz%4", false), "AJ%zz%4");
  EXPECT_EQ(percent_decoded("a+b", false), "a+b");
  EXPECT_EQ(percent_decoded("a+b%", true), "a b%");
}

}  // namespace
}  // namespace lockstep::http
