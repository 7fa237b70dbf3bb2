// The messages of the control plane: requests to the coordinator and its answers, as plain data. This is their only
// definition: gRPC and MPI carry the bytes that message_bytes.h makes of them.
//
// kFields of a message lists its members in the order of their bytes. A new request is a struct with its kFields, an
// alternative of Request::what, and a case in Coordinator::handle(). A message without kFields, a member that kFields
// does not list, and a request that is not handled are compile errors.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

// Incremented whenever the bytes of a message change.
inline constexpr uint64_t kControlProtocol = 3;

// A failure of a job. Only the first one counts.
struct Failure {
  int process = -1;  // that failed; -1: none in particular
  std::string host = {};
  int64_t pid = 0;             // 0: unknown
  std::string operation = {};  // in progress at the time
  int64_t step = -1;           // -1: before the first step
  std::string message = {};
  bool retryable = true;  // restarting from the last checkpoint may help

  static constexpr auto kFields = std::tuple(&Failure::process, &Failure::host, &Failure::pid, &Failure::operation,
                                             &Failure::step, &Failure::message, &Failure::retryable);
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

  static constexpr auto kFields =
      std::tuple(&Progress::step, &Progress::count, &Progress::waiting, &Progress::operation);
};

// A process of the job as the others see it.
struct Peer {
  std::string host = {};
  std::string address = {};  // seen by the coordinator, without port; empty for process 0
  int64_t pid = 0;

  static constexpr auto kFields = std::tuple(&Peer::host, &Peer::address, &Peer::pid);
  bool operator==(const Peer&) const = default;
};

// The requests. Each is answered with an Answer.
namespace request {

using Timeout = std::chrono::nanoseconds;

// Answered when all processes have registered.
struct Register {
  int process_count = 0;
  std::string host = {};
  int64_t pid = 0;
  Timeout timeout = {};

  static constexpr auto kFields =
      std::tuple(&Register::process_count, &Register::host, &Register::pid, &Register::timeout);
};

// The coordinator holds it for a quarter of the heartbeat timeout, and answers immediately when the job fails or is
// over.
struct Heartbeat {
  Progress progress = {};

  static constexpr auto kFields = std::tuple(&Heartbeat::progress);
};

struct Get {
  std::string key = {};
  bool wait = true;
  Timeout timeout = {};

  static constexpr auto kFields = std::tuple(&Get::key, &Get::wait, &Get::timeout);
};

struct Set {
  std::string key = {}, value = {};
  bool overwrite = false;

  static constexpr auto kFields = std::tuple(&Set::key, &Set::value, &Set::overwrite);
};

struct Increment {
  std::string key = {};
  int64_t by = 1;

  static constexpr auto kFields = std::tuple(&Increment::key, &Increment::by);
};

struct List {
  std::string directory = {};

  static constexpr auto kFields = std::tuple(&List::directory);
};

struct Remove {
  std::string key = {};

  static constexpr auto kFields = std::tuple(&Remove::key);
};

struct Barrier {
  std::string name = {};
  Timeout timeout = {};
  std::vector<int> participants = {};  // empty: all

  static constexpr auto kFields = std::tuple(&Barrier::name, &Barrier::timeout, &Barrier::participants);
};

struct Agree {
  std::string name = {};
  uint64_t hash = 0;
  Timeout timeout = {};

  static constexpr auto kFields = std::tuple(&Agree::name, &Agree::hash, &Agree::timeout);
};

// Follows an answer `text_requested`: the text that was hashed. `line_word` is what messages call a line of it.
struct Explain {
  std::string name = {}, text = {}, line_word = {};

  static constexpr auto kFields = std::tuple(&Explain::name, &Explain::text, &Explain::line_word);
};

struct Fail {
  Failure failure = {};
  // It looks like the consequence of another process's failure (a peer closed its connection): the coordinator waits a
  // moment for the cause.
  bool consequence = false;

  static constexpr auto kFields = std::tuple(&Fail::failure, &Fail::consequence);
};

// Answered when all processes have sent it.
struct Shutdown {
  Timeout timeout = {};

  static constexpr auto kFields = std::tuple(&Shutdown::timeout);
};

// The process leaves without shutdown: a failure of the job.
struct Leave {
  static constexpr auto kFields = std::tuple();
};

}  // namespace request

struct Request {
  int process = 0;
  uint64_t incarnation = 0;
  std::variant<request::Heartbeat, request::Register, request::Get, request::Set, request::Increment, request::List,
               request::Remove, request::Barrier, request::Agree, request::Explain, request::Fail, request::Shutdown,
               request::Leave>
      what = {};

  static constexpr auto kFields = std::tuple(&Request::process, &Request::incarnation, &Request::what);
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
inline constexpr Outcome kLastOutcome = Outcome::taken;

struct Answer {
  uint64_t call = 0;  // the call that it answers
  Outcome outcome = Outcome::ok;
  std::string text = {};  // the value of a key, or the error message
  int64_t number = 0;
  std::vector<std::pair<std::string, std::string>> entries = {};  // of a directory
  std::vector<Peer> peers = {};                                   // to a registration: all processes
  std::optional<Failure> failure = {};                            // if the outcome is `failed`
  bool connection_refused = false;                                // if `unreachable`: no process listens there

  static constexpr auto kFields =
      std::tuple(&Answer::call, &Answer::outcome, &Answer::text, &Answer::number, &Answer::entries, &Answer::peers,
                 &Answer::failure, &Answer::connection_refused);
};

}  // namespace lockstep
