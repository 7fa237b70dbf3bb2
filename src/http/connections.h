// Connections: the sockets of a server. One thread reads all requests and writes all answers; others call the handlers.
//
//   bytes -> headers -> Service::judge -> refused: the answer is sent, the body is not read
//                                      -> body -> Service::answer, in this thread or in another -> Reply -> bytes
//
// When all places are taken, a connection of the address with the most of them is closed: first those that have not
// sent a whole request, then those that ignore an answer, are idle, send slowly or do not read.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <poll.h>

#include "base/os/descriptor.h"
#include "http/connection.h"
#include "http/exchange.h"
#include "http/message.h"

namespace lockstep::http {

// What a server answers.
class Service {
 public:
  virtual ~Service() = default;

  struct Verdict {
    std::optional<Response> refusal = {};  // the answer to a request that is refused
    size_t max_body = 0;
    bool is_quick = false;  // the reading thread answers it itself
  };
  // Judges a request whose headers have arrived, before its body is read. Called by the reading thread: it must not
  // wait.
  virtual Verdict judge(Request& request) = 0;
  // Answers a request, now or later. Called by several threads. Throws nothing.
  virtual void answer(const std::shared_ptr<Exchange>& exchange) = 0;
  // A request was answered. Called by the reading thread.
  virtual void count(const Request& request, int status, std::chrono::duration<double> time) = 0;
  virtual void log(const std::string& text) = 0;
};

class Connections {
 public:
  struct Limits {
    int threads = 8, connections = 2048;
    size_t bodies = size_t{1} << 20;  // bytes of all bodies together
    std::chrono::milliseconds timeout{10'000};
    int64_t slowest_client = 65536;  // bytes per second
    Headers headers = {};            // of every answer
  };

  Connections(Descriptor listener, const Limits& limits, Service& service);

  // Returns after stop(), when all requests that had arrived are answered.
  void run();
  void stop();  // from any thread, and before run()
  bool is_stopping() const { return mailbox_->is_stopping(); }

 private:
  using Phase = Connection::Phase;

  Clock::time_point deadline_of(Clock::time_point begin, size_t bytes) const;
  void wait_for_events();
  void handle_events();
  void handle(Connection& connection, short events);
  void take_news();
  void remove_closed();

  void accept_some();
  void accept_one(Descriptor socket, Peer& peer);
  bool make_room();
  std::list<Connection>::iterator next_to_evict(Clock::time_point now);

  void read(Connection& connection);
  void read_requests(Connection& connection);
  bool judge(Connection& connection);
  bool account_body(Connection& connection);
  void release_body(Connection& connection);
  void start(Connection& connection);

  void refuse(Connection& connection, const Response& response, bool closes);
  void refuse_bad(Connection& connection, const BadRequest& error);
  void begin_reading(Connection& connection);
  void pump(Connection& connection);
  void add_head(Connection& connection, const Response& head, bool is_in_pieces);
  void begin_writing(Connection& connection);
  void write(Connection& connection);
  void finish(Connection& connection);
  void leave(Connection& connection);
  void drain(Connection& connection);
  void discard(Connection& connection);
  void expire(Connection& connection);
  void close(Connection& connection);

  void work();

  const Descriptor listener_;
  const Limits limits_;
  Service& service_;
  const std::shared_ptr<Mailbox> mailbox_;
  Peers peers_;
  std::list<Connection> all_;
  std::vector<pollfd> events_;
  Clock::time_point accept_again_ = {};  // after a failure of the system
  size_t bodies_ = 0;                    // bytes of bodies in memory
  int64_t served_ = 0;                   // connections that have been answered
  size_t extra_ = 0;                     // connections without a place

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Exchange>> queue_;
  bool ended_ = false;
};

}  // namespace lockstep::http
