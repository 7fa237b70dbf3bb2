// Barriers: the coordinator's named barriers, agreements (barriers at which all processes must present the same hash)
// and the shutdown barrier. Like the coordinator: no I/O, no clock, not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cluster/messages.h"

namespace lockstep {

class Barriers {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Kind : uint8_t { barrier, agreement, shutdown };

  // `label` describes a process for messages: `process 3 (host n07)`. Answers are appended to `answers`, which must
  // outlive this object.
  Barriers(int process_count, std::function<std::string(int)> label, std::vector<Answer>& answers)
      : process_count_(process_count), label_(std::move(label)), answers_(answers) {}

  // A process arrives at a barrier. The first arrival sets the deadline and the participants. A process that arrives
  // after the deadline is immediately answered with the timeout. Returns whether all participants have arrived.
  bool join(uint64_t call, int process, const request::Barrier& request, Time now);
  bool join_shutdown(uint64_t call, int process, const request::Shutdown& request, Time now);

  // When all have arrived with equal hashes, all are answered `ok`. If hashes differ, two processes are asked for their
  // texts with explain(); then all are refused with the first line that differs.
  void agree(uint64_t call, int process, const request::Agree& request, Time now);
  void explain(uint64_t call, int process, const request::Explain& request);

  // The caller no longer waits: it counts as not arrived.
  void cancel(uint64_t call);

  struct Expired {
    Kind kind = Kind::barrier;
    std::vector<int> missing;
    std::string message;
  };
  // Answers the calls whose deadline has passed, and returns the barriers that timed out.
  std::vector<Expired> expire(Time now);
  // Returns all pending calls and forgets them.
  std::vector<uint64_t> take_waiting();
  // The earliest deadline; Time::max() if no call is pending.
  Time next_deadline() const;

 private:
  struct Arrival {
    uint64_t call = 0;  // 0: was asked for its text, or no longer waits
    uint64_t hash = 0;
    std::string text = {};
    bool explained = false;
  };
  struct Barrier {
    std::vector<int> participants;
    std::chrono::nanoseconds timeout{};
    Time deadline{};
    std::map<int, Arrival> arrived;         // by process
    std::pair<int, int> differing{-1, -1};  // the two processes that are asked for their texts
    std::string line_word;
  };
  // A barrier that timed out. Missing processes get its message when they arrive.
  struct TimedOut {
    std::vector<int> processes;
    std::string message;
  };
  using Key = std::pair<Kind, std::string>;

  void answer(uint64_t call, Outcome outcome, std::string text) {
    if (call) answers_.push_back({.call = call, .outcome = outcome, .text = std::move(text)});
  }
  void answer_all(const Barrier& barrier, Outcome outcome, const std::string& text);
  // Adds the process to a barrier and returns it; null if the call was already answered.
  Barrier* arrive(uint64_t call, int process, const Key& key, std::vector<int> participants,
                  std::chrono::nanoseconds timeout, Time now);
  bool complete(const Barrier& barrier) const { return barrier.arrived.size() == barrier.participants.size(); }
  void close_if_explained(const Key& key);
  std::string difference(const Key& key, const Barrier& barrier) const;
  std::string labels(const std::vector<int>& processes) const;
  static std::string title(const Key& key);

  const int process_count_;
  const std::function<std::string(int)> label_;
  std::vector<Answer>& answers_;
  std::map<Key, Barrier> open_;
  std::map<Key, TimedOut> timed_out_;
};

}  // namespace lockstep
