// Coordinator: the control plane's decisions, as a state machine without I/O, threads or clocks. Requests go in with
// their arrival time. Answers come out of take_answers(), some immediately, some later:
//
//   coordinator.handle(1, {.process = 0, .incarnation = 7, .what = request::Barrier{"start", 5s}}, "", now);
//   coordinator.tick(now + 5s);
//   coordinator.take_answers();
//   // call 1: timeout, `barrier "start": 1 of 2 processes arrived within 5 s; missing: process 1`
//
// A process is identified by its id and its incarnation, a random number chosen when it started. States of a job:
//
//   registering   until all processes have registered: all other requests are refused
//   running       processes can become lost or stuck
//   failed        every request is answered with the failure
//   over          all processes went through shutdown
//
// A process is *lost* if nothing was received from it for heartbeat_timeout (for a quarter of that, once its connection
// broke). It is *stuck* if it makes no progress while others wait for it. The first failure, detected here or reported
// by a process, becomes the job's failure, and all processes are notified. A process that reports what may be the
// consequence of another failure, and then leaves, is not lost: if no cause follows, its report is the failure. Not
// thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/barriers.h"
#include "cluster/key_table.h"
#include "cluster/messages.h"

namespace lockstep {

struct CoordinatorOptions {
  int process_count = 1;
  std::chrono::nanoseconds heartbeat_timeout = std::chrono::seconds(10);
  // How long a process may make no progress while others wait for it: in its first step, and in later ones.
  std::chrono::nanoseconds first_step_timeout = std::chrono::minutes(5);
  std::chrono::nanoseconds step_timeout = std::chrono::seconds(60);
  std::vector<std::string> hosts = {};  // of all processes, if known in advance; or empty
  KeyLimits keys = {};
};

class Coordinator {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Coordinator(CoordinatorOptions options, Time now);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Handles a request that arrived from `address` (without port). REQUIRES: `call` is unique and not 0.
  void handle(uint64_t call, const Request& request, const std::string& address, Time now);

  // The caller no longer waits for this answer: its connection broke.
  void cancel(uint64_t call, Time now);

  // Handles expired deadlines. Call it no later than next_deadline(), which changes with every request.
  void tick(Time now);
  Time next_deadline() const;

  // Answers all pending and later calls with a failure: the coordinator is about to end.
  void close(const std::string& reason);

  std::vector<Answer> take_answers() { return std::exchange(answers_, {}); }

  const std::optional<Failure>& failure() const { return failure_; }
  // Whether the failure was sent to all processes, except the one that failed and those whose connection broke.
  bool failure_delivered() const;
  // Whether all processes have registered.
  bool started() const { return started_; }
  // Whether all processes went through shutdown.
  bool over() const { return over_; }
  // How long a heartbeat is held.
  std::chrono::nanoseconds heartbeat_interval() const { return options_.heartbeat_timeout / 4; }

 private:
  struct Process {
    bool registered = false;
    uint64_t incarnation = 0;
    Peer peer;
    uint64_t registration = 0;  // pending call; 0: none
    Time register_deadline{};
    std::chrono::nanoseconds register_timeout{};
    Time last_heard{};
    std::optional<Time> disconnected;
    bool notified = false;   // the failure was sent to it
    bool reported = false;   // it has reported a failure, so it leaves because of that
    uint64_t heartbeat = 0;  // pending call; 0: none
    Time heartbeat_due{};
    Progress progress;
    Time progress_received{};  // when `progress` arrived
    int64_t first_step = -1;
    Time last_progress{};  // when `progress.count` last changed
  };

  void answer(uint64_t call, Outcome outcome, std::string text);
  void answer_failed(uint64_t call);
  void set_failure(Failure failure);
  Process& at(int process) { return processes_[static_cast<size_t>(process)]; }
  const Process& at(int process) const { return processes_[static_cast<size_t>(process)]; }
  // `process 3 (host n07, pid 4842)`, for messages.
  std::string label(int process) const;
  bool is_known(const Request& request) const;

  void handle_register(uint64_t call, const Request& request, const request::Register& what, const std::string& address,
                       Time now);
  std::string refusal(const Request& request, const request::Register& what, Outcome& outcome) const;
  std::string describe_registrations() const;
  void start(Time now);
  void handle_heartbeat(uint64_t call, int process, const request::Heartbeat& what, Time now);
  void handle_fail(uint64_t call, int process, const request::Fail& what, Time now);
  void handle_leave(uint64_t call, int process, Time now);
  void finish();

  void compensate_for_suspension(Time now);
  void check_registrations(Time now);
  void check_lost(Time now);
  void check_stuck(Time now);
  Time lost_at(const Process& process) const;
  bool is_stuck(const Process& process) const;
  // A retryable failure of a process, with its last known progress.
  Failure failure_of(int process, const std::string& fact) const;

  const CoordinatorOptions options_;
  std::vector<Answer> answers_;
  std::vector<Process> processes_;
  KeyTable keys_;
  Barriers barriers_;
  bool started_ = false;
  bool over_ = false;
  std::string registration_timeout_;  // of process 0, which then leaves
  std::optional<Failure> failure_;
  std::optional<Failure> consequence_;  // waits for its cause to be reported
  Time consequence_due_{};
  Time last_tick_;
};

}  // namespace lockstep
