// EventStreams: tells open pages of a board what has changed, as server-sent events. One thread writes to all of them.
// Safe from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "board/run_store.h"
#include "http/reply.h"

namespace lockstep::board {

class EventStreams {
 public:
  static constexpr size_t kMost = 32;

  explicit EventStreams(RunStore& store);
  ~EventStreams();
  EventStreams(const EventStreams&) = delete;
  EventStreams& operator=(const EventStreams&) = delete;

  // Sends events "changed" to a page until it is closed or for ten minutes, then it connects again. Their data is the
  // list of what has changed: "" for the list of runs, ids of `runs`.
  void add(std::vector<std::string> runs, http::Reply& reply);

 private:
  struct Stream {
    http::Reply reply;
    std::vector<std::string> runs;
    std::chrono::steady_clock::time_point end;
    RunStore::Changes seen = {};
    int idle = 0;
  };

  void run();
  static bool advance(Stream& stream, const RunStore::Changes& now);

  RunStore& store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Stream> streams_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace lockstep::board
