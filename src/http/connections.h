// Connections: the sockets of a server. One thread waits for all of them, reads requests, and writes answers; others
// call the handlers.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include <poll.h>

#include "base/os/descriptor.h"
#include "http/message.h"
#include "http/request_parser.h"

namespace lockstep::http {

class Connections {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    int threads = 8, connections = 64;
    size_t max_body = 4096;
    std::chrono::milliseconds timeout{10'000};
    int64_t slowest_client = 65536;  // bytes per second
  };
  // Answers a request; called from several threads. It does not throw.
  using Answer = std::function<Response(const Request&)>;

  Connections(Descriptor listener, const Limits& limits, Answer answer);

  // Returns after stop(), when all requests that had arrived are answered.
  void run();
  void stop();  // from any thread, and before run()
  bool is_stopping() const { return stopping_; }

 private:
  enum class State { reading, queued, writing, draining };
  struct Connection {
    explicit Connection(Descriptor accepted, size_t max_body) : socket(std::move(accepted)), parser(max_body) {}
    Descriptor socket;
    RequestParser parser;
    State state = State::reading;
    Clock::time_point deadline = {}, begun = {};  // begun: when the first byte of the request arrived
    Request request = {};
    std::string out = {};
    size_t sent = 0;
    bool has_unread = false;  // the parser has bytes behind the last request
    bool was_served = false;
    bool is_last = false;  // the connection is closed when `out` is sent
    bool is_closed = false;
  };

  Clock::duration time_of(size_t bytes) const;
  Clock::time_point deadline_of(Clock::time_point begin, size_t bytes) const;
  void wait_for_events();
  void handle_events();
  void accept_all();
  bool make_room();
  void expire(Connection& connection);
  void read(Connection& connection);
  void take_request(Connection& connection);
  void reject(Connection& connection, const BadRequest& error);
  void begin_reading(Connection& connection);
  void begin_writing(Connection& connection);
  void write(Connection& connection);
  void drain(Connection& connection);
  void take_answers();
  void work();
  void answer(Connection& connection);
  void send_stream(Connection& connection, const Response& response);
  bool send_all(Connection& connection, std::string_view text, Clock::duration& left);
  void wake() const;

  const Descriptor listener_;
  const Limits limits_;
  const Answer answer_;
  const Pipe wake_;
  std::atomic<bool> stopping_ = false;
  std::list<Connection> all_;
  std::vector<pollfd> events_;
  Clock::time_point accept_again_ = {};  // after a failure of the system

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Connection*> queue_, answered_;
  bool ended_ = false;
};

}  // namespace lockstep::http
