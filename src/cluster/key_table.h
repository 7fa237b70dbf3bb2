// KeyTable: the coordinator's keys and values, and those who wait for a key. Like the coordinator it does no I/O, has
// no clock and belongs to one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cluster/messages.h"

namespace lockstep {

struct KeyLimits {
  size_t key_bytes = 1024;
  size_t value_bytes = size_t{4} << 20;
  size_t count = 100'000;
  size_t total_bytes = size_t{512} << 20;  // of all keys and values
  size_t list_bytes = size_t{32} << 20;    // of one answer
};

class KeyTable {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Answers are added to the vector, which outlives the table.
  KeyTable(KeyLimits limits, std::vector<Answer>& answers) : limits_(limits), answers_(answers) {}

  // Keys are not empty and hold no control characters. `a/b` lies in the directory `a`.
  void get(uint64_t call, const request::Get& request, Time deadline);
  void set(uint64_t call, const request::Set& request);
  // A key that is not there counts as 0. Answers the new value.
  void increment(uint64_t call, const request::Increment& request);
  // Everything below a directory, sorted by key; "" is all there is.
  void list(uint64_t call, const request::List& request);
  // Removes a key and what lies below it. Answers how many there were.
  void remove(uint64_t call, const request::Remove& request);

  // Forgets one that waits.
  void cancel(uint64_t call) { waiting_.erase(call); }
  // Answers those whose time is up.
  void expire(Time now);
  // The calls that wait, which are then forgotten.
  std::vector<uint64_t> take_waiting();
  // Not after which expire() has something to do; Time::max() when nobody waits.
  Time next_deadline() const;

 private:
  struct Waiter {
    std::string key;
    Time deadline;
    std::chrono::nanoseconds timeout;
  };

  void answer(uint64_t call, Outcome outcome, std::string text) {
    answers_.push_back({.call = call, .outcome = outcome, .text = std::move(text)});
  }
  // Whether the key may be used; a refusal is answered.
  bool check_key(uint64_t call, const char* operation, const std::string& key);
  // Stores, and answers those who wait for it. Whether there was room; a refusal is answered.
  bool store(uint64_t call, const char* operation, const std::string& key, const std::string& value);

  const KeyLimits limits_;
  std::vector<Answer>& answers_;
  std::map<std::string, std::string> values_;
  size_t bytes_ = 0;
  std::map<uint64_t, Waiter> waiting_;  // by call
};

}  // namespace lockstep
