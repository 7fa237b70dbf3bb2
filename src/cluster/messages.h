// What processes ask of the coordinator and what it answers, as plain data: the same whether they share a process with
// it or speak to it over a network.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

// Changes whenever a message changes its meaning: processes of one job must agree on it.
inline constexpr int kControlProtocol = 2;

// The first thing that went wrong in a job.
struct Failure {
  int process = -1;  // whose; -1: nobody's in particular
  std::string host = {};
  int64_t pid = 0;             // 0: not known
  std::string operation = {};  // what it was doing
  int64_t step = -1;           // in which step; -1: before the first
  std::string message = {};
  bool retryable = true;  // whether starting again from the last checkpoint may help

  bool operator==(const Failure&) const = default;
};

// One line: `process 3 (host n07, pid 4842), step 120, all_reduce: no heartbeat for 10 s`.
std::string describe(const Failure& failure);

// A time as people write it: "10 s", "250 ms", "5 min".
std::string describe(std::chrono::nanoseconds duration);

// How far a process is. `count` grows with every sign of life of the computation, in whatever step.
struct Progress {
  int64_t step = -1;
  uint64_t count = 0;
  bool waiting = false;  // for the other processes, in an operation that all of them take part in
  std::string operation = {};
};

// A process of the job as the others see it.
struct Peer {
  std::string host = {};
  std::string address = {};  // from which it reached the coordinator, without port; of that one's own process empty
  int64_t pid = 0;

  bool operator==(const Peer&) const = default;
};

// What may be asked.
namespace request {

using Timeout = std::chrono::nanoseconds;

// Answered when all processes have registered.
struct Register {
  int process_count = 0;
  int protocol = kControlProtocol;
  std::string version = {};
  std::string host = {};
  int64_t pid = 0;
  Timeout timeout = {};
};

// Held for a while, and answered at once when the job fails or is over.
struct Heartbeat {
  Progress progress = {};
};

struct Get {
  std::string key = {};
  bool wait = true;
  Timeout timeout = {};
};

struct Set {
  std::string key = {}, value = {};
  bool overwrite = false;
};

struct Increment {
  std::string key = {};
  int64_t by = 1;
};

struct List {
  std::string directory = {};
};

struct Remove {
  std::string key = {};
};

struct Barrier {
  std::string name = {};
  Timeout timeout = {};
  std::vector<int> participants = {};  // empty: all
};

struct Agree {
  std::string name = {};
  uint64_t hash = 0;
  Timeout timeout = {};
};

// After an answer `text_requested`: what was hashed. A line of it is called by that word in messages.
struct Explain {
  std::string name = {}, text = {}, line_word = {};
};

struct Fail {
  Failure failure = {};
  // Whether it looks like the trace of another's failure (a peer closed its connection): then the coordinator waits
  // a moment for the cause itself.
  bool consequence = false;
};

// Answered when all have asked for it.
struct Shutdown {
  Timeout timeout = {};
};

// Goes without the others.
struct Leave {};

}  // namespace request

struct Request {
  int process = 0;
  uint64_t incarnation = 0;
  std::variant<request::Heartbeat, request::Register, request::Get, request::Set, request::Increment, request::List,
               request::Remove, request::Barrier, request::Agree, request::Explain, request::Fail, request::Shutdown,
               request::Leave>
      what = {};
};

enum class Outcome : uint8_t {
  ok,
  absent,          // there is no such key
  text_requested,  // hashes differ: send the text
  over,            // of a heartbeat: the job is over
  refused,         // the caller's mistake
  timeout,         // others did not come in time
  failed,          // the job has failed
  unreachable,     // no answer from the coordinator
  taken,           // of a registration: a process of that id takes part in the job
};

struct Answer {
  uint64_t call = 0;  // which call it answers
  Outcome outcome = Outcome::ok;
  std::string text = {};  // the value of a key; of an outcome that is no success, why
  int64_t number = 0;
  std::vector<std::pair<std::string, std::string>> entries = {};  // of a directory
  std::vector<Peer> peers = {};                                   // of all processes, to a registration
  std::optional<Failure> failure = {};                            // where the outcome is `failed`
  bool connection_refused = false;  // where it is `unreachable`: at the coordinator's address, which is not sent
};

}  // namespace lockstep
