// KeyTable: the coordinator's key-value store, with the calls that wait for a key. Like the coordinator: no I/O, no
// clock, not thread-safe.
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

  // Answers are appended to `answers`, which must outlive the table.
  KeyTable(KeyLimits limits, std::vector<Answer>& answers) : limits_(limits), answers_(answers) {}

  // Keys are not empty and contain no control characters. `a/b` is in the directory `a`.
  void get(uint64_t call, const request::Get& request, Time deadline);
  void set(uint64_t call, const request::Set& request);
  // An unset key counts as 0. Answers the new value.
  void increment(uint64_t call, const request::Increment& request);
  // Answers all entries below a directory, sorted by key; "" lists everything.
  void list(uint64_t call, const request::List& request);
  // Removes a key and all keys below it. Answers the number of removed keys.
  void remove(uint64_t call, const request::Remove& request);

  // Forgets a pending call.
  void cancel(uint64_t call) { waiting_.erase(call); }
  // Answers the calls whose deadline has passed.
  void expire(Time now);
  // Returns all pending calls and forgets them.
  std::vector<uint64_t> take_waiting();
  // The earliest deadline; Time::max() if no call is pending.
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
  // Returns whether the key is valid; otherwise answers the call.
  bool check_key(uint64_t call, const char* operation, const std::string& key);
  // Stores a value and answers the calls that wait for the key. Returns false, and answers the call, if a limit is hit.
  bool store(uint64_t call, const char* operation, const std::string& key, const std::string& value);

  const KeyLimits limits_;
  std::vector<Answer>& answers_;
  std::map<std::string, std::string> values_;
  size_t bytes_ = 0;
  std::map<uint64_t, Waiter> waiting_;  // by call
};

}  // namespace lockstep
