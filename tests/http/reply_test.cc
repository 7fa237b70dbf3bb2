// Requests are answered later, by any thread, in pieces; a failure is visible to the client.
#include "http/reply.h"

#include <gtest/gtest.h>

#include <thread>

#include "http/running_server.h"
#include "lockstep/error.h"
#include "support/text.h"

namespace lockstep::http {
namespace {

using std::chrono::milliseconds;

Response text_head() {
  Response out;
  out.type = "text/plain";
  return out;
}

// Keeps the last reply until the test takes it.
class KeptReply {
 public:
  explicit KeptReply(Server& server, const std::string& path = "/later") {
    server.get_later(path, [this](const Request&, Reply& reply) {
      const std::lock_guard lock(mutex_);
      reply_ = std::make_unique<Reply>(std::move(reply));
      arrived_.set();
    });
  }
  Reply take() {
    EXPECT_TRUE(arrived_.wait());
    const std::lock_guard lock(mutex_);
    return std::move(*reply_);
  }

 private:
  std::mutex mutex_;
  Signal arrived_;
  std::unique_ptr<Reply> reply_;
};

TEST(Reply, ALaterAnswerHoldsNoThread) {
  RunningServer own({.threads = 1});
  KeptReply kept(own.server);
  own.start();
  HttpConnection client(own.port());
  EXPECT_TRUE(client.send(head("GET /later")));
  Reply reply = kept.take();
  EXPECT_TRUE(HttpConnection(own.port()).get("/").ends_with("hello"));
  EXPECT_TRUE(reply.is_open());
  Response response;
  response.set_content("late", "text/plain");
  reply.send(std::move(response));
  EXPECT_FALSE(reply);
  EXPECT_TRUE(client.read_until("late").ends_with("Content-Length: 4\r\n\r\nlate"));
  EXPECT_TRUE(client.get("/").ends_with("hello"));
}

TEST(Reply, PiecesArriveAndTheConnectionContinues) {
  RunningServer own;
  KeptReply kept(own.server);
  own.start();
  HttpConnection client(own.port());
  EXPECT_TRUE(client.send(head("GET /later")));
  Reply reply = kept.take();
  reply.begin(text_head());
  EXPECT_TRUE(reply.write("0123456789abcdef"));
  EXPECT_TRUE(client.read_until("cdef\r\n").ends_with("Transfer-Encoding: chunked\r\n\r\n10\r\n0123456789abcdef\r\n"));
  EXPECT_TRUE(reply.write(""));
  EXPECT_TRUE(reply.write("end"));
  reply.end();
  EXPECT_EQ(client.read_until("\r\n0\r\n\r\n"), "3\r\nend\r\n0\r\n\r\n");
  EXPECT_TRUE(client.get("/").ends_with("hello"));
}

TEST(Reply, OldClientsReadPiecesUntilTheConnectionEnds) {
  RunningServer own;
  KeptReply kept(own.server);
  own.start();
  HttpConnection client(own.port());
  EXPECT_TRUE(client.send("GET /later HTTP/1.0\r\n\r\n"));
  Reply reply = kept.take();
  reply.begin(text_head());
  EXPECT_TRUE(reply.write("one "));
  EXPECT_TRUE(reply.write("two"));
  reply.end();
  EXPECT_TRUE(client.read_all().ends_with("Connection: close\r\n\r\none two"));
  EXPECT_FALSE(client.was_reset());
}

TEST(Reply, HeadHasNoPieces) {
  RunningServer own;
  own.server.get_later("/later", [](const Request&, Reply& reply) {
    reply.begin(text_head());
    EXPECT_TRUE(reply.write("body"));
    reply.end();
  });
  own.start();
  EXPECT_TRUE(HttpConnection(own.port()).ask(head("HEAD /later", "Connection: close\r\n")).ends_with("\r\n\r\n"));
}

TEST(Reply, FailuresBeforeTheFirstPieceAreStatuses) {
  RunningServer own;
  own.server.get_later("/mistake", [](const Request&, Reply& reply) {
    reply.begin(text_head());
    throw Error("x is 2; give 1");
  });
  own.server.get_later("/failure", [](const Request&, Reply&) { throw OutOfMemory("no memory"); });
  own.server.get_later("/forgotten", [](const Request&, Reply& reply) { const Reply dropped(std::move(reply)); });
  own.start();
  const auto get = [&](const char* path) { return HttpConnection(own.port()).get(path); };
  expect_contains(get("/mistake"), "HTTP/1.1 400 ");
  expect_contains(get("/mistake"), "{\"error\":\"x is 2; give 1\"}");
  expect_contains(get("/failure"), "HTTP/1.1 500 ");
  expect_contains(get("/forgotten"), "{\"error\":\"the request was given up\"}");
}

// An exception in a handler that has sent a part of the answer, for a client of either version.
TEST(Reply, FailuresAfterTheFirstPieceCutTheBodyOff) {
  RunningServer own;
  own.server.get_later("/cut", [](const Request&, Reply& reply) {
    reply.begin(text_head());
    EXPECT_TRUE(reply.write("part"));
    throw std::runtime_error("the GPU was lost");
  });
  own.start();
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    const std::string chunks = HttpConnection(own.port()).ask(head("GET /cut"));
    expect_contains(chunks, "4\r\npart\r\n");
    expect_lacks(chunks, "\r\n0\r\n\r\n");  // the client knows that the rest is missing
  }
  HttpConnection old(own.port());
  EXPECT_TRUE(old.send("GET /cut HTTP/1.0\r\n\r\n"));
  old.read_all();
  EXPECT_TRUE(old.was_reset());
  EXPECT_TRUE(HttpConnection(own.port()).get("/").ends_with("hello"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "lockstep: test: GET /cut: the answer ended early: the GPU was lost (logged once)\n");
}

TEST(Reply, AfterTheDeadlineTheLateAnswerIsSent) {
  RunningServer own;
  Signal answered;
  std::unique_ptr<Reply> kept;
  own.server.get_later("/late", [&](const Request&, Reply& reply) {
    Response late;
    late.set_error(504, "it took too long");
    reply.set_deadline(std::chrono::steady_clock::now(), late);
    kept = std::make_unique<Reply>(std::move(reply));
  });
  own.start();
  HttpConnection client(own.port());
  EXPECT_TRUE(client.send(head("GET /late")));
  expect_contains(client.read_until("it took too long\"}\n"), "HTTP/1.1 504 Gateway Timeout\r\n");
  EXPECT_FALSE(kept->is_open());
  kept->send({});  // has no effect
  EXPECT_TRUE(client.get("/").ends_with("hello"));
}

TEST(Reply, ClientsThatLeaveAreNoticed) {
  RunningServer own;
  KeptReply kept(own.server);
  own.start();
  auto client = std::make_unique<HttpConnection>(own.port());
  EXPECT_TRUE(client->send(head("GET /later")));
  Reply reply = kept.take();
  reply.begin(text_head());
  EXPECT_TRUE(reply.write("begin"));
  client->read_until("begin");
  client.reset();
  while (reply.is_open()) std::this_thread::yield();
  EXPECT_FALSE(reply.write("more"));
}

TEST(Reply, ClientsThatDoNotReadBoundWhatWaits) {
  RunningServer own({.timeout = milliseconds(300), .slowest_client = int64_t{1} << 40});
  KeptReply kept(own.server);
  own.start();
  HttpConnection client(own.port());
  EXPECT_TRUE(client.send(head("GET /later")));
  Reply reply = kept.take();
  reply.begin(text_head());
  const std::string piece(100'000, 'x');
  int pieces = 0;
  while (reply.write(piece)) ++pieces;
  EXPECT_LT(pieces, 1000);  // those in the buffers of the sockets, and kMaxUnsent
  EXPECT_FALSE(reply.is_open());
}

TEST(Reply, StopEndsAnswersInPieces) {
  auto own = std::make_unique<RunningServer>();
  KeptReply kept(own->server);
  own->start();
  HttpConnection client(own->port());
  EXPECT_TRUE(client.send(head("GET /later")));
  Reply reply = kept.take();
  reply.begin(text_head());
  EXPECT_TRUE(reply.write("part"));
  client.read_until("part");
  own->server.stop();
  EXPECT_FALSE(reply.write("more"));
  reply.end();
  own.reset();
  client.read_all();
}

TEST(Reply, MayOutliveTheServer) {
  auto own = std::make_unique<RunningServer>();
  KeptReply kept(own->server);
  own->start();
  auto client = std::make_unique<HttpConnection>(own->port());
  EXPECT_TRUE(client->send(head("GET /later")));
  Reply reply = kept.take();
  client.reset();
  while (reply.is_open()) std::this_thread::yield();
  own.reset();
  reply.send_error(500, "too late");
}

}  // namespace
}  // namespace lockstep::http
