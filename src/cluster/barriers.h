// Barriers: the named places where processes of a job wait for each other: barriers, agreements (barriers to which
// everybody brings a hash that must be the same) and the last one, shutdown. Like the coordinator they do no I/O, have
// no clock and belong to one thread at a time.
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

  // `label` describes a process: `process 3 (host n07)`. Answers are added to the vector, which outlives this.
  Barriers(int process_count, std::function<std::string(int)> label, std::vector<Answer>& answers)
      : process_count_(process_count), label_(std::move(label)), answers_(answers) {}

  // A process comes. The first to come decides on the deadline and the participants. One that comes after the deadline,
  // and was timed_out, is told so at once. Whether with it everybody has come.
  bool join(uint64_t call, int process, const request::Barrier& request, Time now);
  bool join_shutdown(uint64_t call, int process, const request::Shutdown& request, Time now);

  // Once all have come they are told ok, or, where hashes differing, two of them are asked to explain() themselves and
  // then all are refused with the first line that differs.
  void agree(uint64_t call, int process, const request::Agree& request, Time now);
  void explain(uint64_t call, int process, const request::Explain& request);

  // The caller has gone: it counts as not having come.
  void cancel(uint64_t call);

  struct Expired {
    Kind kind = Kind::barrier;
    std::vector<int> missing;
    std::string message;
  };
  // Answers those whose time is up, and says what happened.
  std::vector<Expired> expire(Time now);
  // The calls that wait, which are then forgotten.
  std::vector<uint64_t> take_waiting();
  // Not after which expire() has something to do; Time::max() when nobody waits.
  Time next_deadline() const;

 private:
  struct Arrival {
    uint64_t call = 0;  // 0: not waiting, it is asked to explain
    uint64_t hash = 0;
    std::string text = {};
    bool explained = false;
  };
  struct Barrier {
    std::vector<int> participants;
    std::chrono::nanoseconds timeout{};
    Time deadline{};
    std::map<int, Arrival> arrived;         // by process
    std::pair<int, int> differing{-1, -1};  // the two that are asked to explain
    std::string line_word;
  };
  // Over, but not for those label were timed_out.
  struct TimedOut {
    std::vector<int> processes;
    std::string message;
  };
  using Key = std::pair<Kind, std::string>;

  void answer(uint64_t call, Outcome outcome, std::string text) {
    if (call) answers_.push_back({.call = call, .outcome = outcome, .text = std::move(text)});
  }
  void answer_all(const Barrier& barrier, Outcome outcome, const std::string& text);
  // The barrier which the process has joined, or null when that is answered already.
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
