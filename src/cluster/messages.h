// Requests to the coordinator and its answers, as plain data. They are the same for calls within process 0, over gRPC
// and over MPI.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

// Incremented whenever a message changes: all processes of a job must use the same version.
inline constexpr int kControlProtocol = 2;

// A failure of a job. Only the first one counts.
struct Failure {
  int process = -1;  // that failed; -1: none in particular
  std::string host = {};
  int64_t pid = 0;             // 0: unknown
  std::string operation = {};  // in progress at the time
  int64_t step = -1;           // -1: before the first step
  std::string message = {};
  bool retryable = true;  // restarting from the last checkpoint may help

  bool operator==(const Failure&) const = default;
};

// One line: `process 3 (host n07, pid 4842), step 120, all_reduce: no heartbeat for 10 s`.
std::string describe(const Failure& failure);

// A duration for messages: "10 s", "250 ms", "5 min".
std::string describe(std::chrono::nanoseconds duration);

// The progress of a process. `count` increases with every call of Control::progress().
struct Progress {
  int64_t step = -1;
  uint64_t count = 0;
  bool waiting = false;  // blocked in a collective, waiting for other processes
  std::string operation = {};
};

// A process of the job as the others see it.
struct Peer {
  std::string host = {};
  std::string address = {};  // seen by the coordinator, without port; empty for process 0
  int64_t pid = 0;

  bool operator==(const Peer&) const = default;
};

// The requests. Each is answered with an Answer.
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

// The coordinator holds it for a quarter of the heartbeat timeout, and answers immediately when the job fails or is
// over.
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

// Follows an answer `text_requested`: the text that was hashed. `line_word` is what messages call a line of it.
struct Explain {
  std::string name = {}, text = {}, line_word = {};
};

struct Fail {
  Failure failure = {};
  // It looks like the consequence of another process's failure (a peer closed its connection): the coordinator waits a
  // moment for the cause.
  bool consequence = false;
};

// Answered when all processes have sent it.
struct Shutdown {
  Timeout timeout = {};
};

// The process leaves without shutdown: a failure of the job.
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
  absent,          // the key is not set
  text_requested,  // hashes differ: send the text
  over,            // to a heartbeat: the job has ended
  refused,         // the request is invalid
  timeout,         // other processes did not arrive in time
  failed,          // the job has failed
  unreachable,     // no answer from the coordinator
  taken,           // to a registration: a running process has this id
};

struct Answer {
  uint64_t call = 0;  // the call that it answers
  Outcome outcome = Outcome::ok;
  std::string text = {};  // the value of a key, or the error message
  int64_t number = 0;
  std::vector<std::pair<std::string, std::string>> entries = {};  // of a directory
  std::vector<Peer> peers = {};                                   // to a registration: all processes
  std::optional<Failure> failure = {};                            // if the outcome is `failed`
  bool connection_refused = false;  // if `unreachable`: no process listens there. Not sent
};

}  // namespace lockstep
