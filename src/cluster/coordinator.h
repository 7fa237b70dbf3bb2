// Coordinator: everything the control plane of a job decides, as a state machine without I/O, threads or clocks.
// Requests go in with the time at which they came, answers come out of take_answers(), some at once, some later:
//
//   coordinator.handle(1, {.process = 0, .incarnation = 7, .what = request::Barrier{"start", 5s}}, "", now);
//   coordinator.tick(now + 5s);
//   coordinator.take_answers();   // call 1: timeout, `barrier "start": 1 of 2 processes came in 5 s; missing: process
//   1`
//
// A process is known by its id and its incarnation, a random number it chose when it started. Nobody takes part before
// all have registered. From then on it is *lost* when nothing is last_heard of it for heartbeat_timeout (or, once its
// connection broke, a quarter of that), and *stuck* when others wait for it and it makes no progress. The first
// failure, found here or reported by a process, is the job's: it is notified to everybody, and nothing works afterwards.
// Used by one thread at a time.
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
  std::string version = {};
  std::chrono::nanoseconds heartbeat_timeout = std::chrono::seconds(10);
  // How long a process may make no progress while others wait for it: in its first step, and later.
  std::chrono::nanoseconds first_step_timeout = std::chrono::minutes(5);
  std::chrono::nanoseconds step_timeout = std::chrono::seconds(60);
  std::vector<std::string> hosts = {};  // of all processes, where known beforehand; or empty
  KeyLimits keys = {};
};

class Coordinator {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Coordinator(CoordinatorOptions options, Time now);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // A request under a number of its own, not 0, from an address (without port).
  void handle(uint64_t call, const Request& request, const std::string& address, Time now);

  // Nobody waits for this answer any more: the connection broke.
  void cancel(uint64_t call, Time now);

  // Lets time pass. To be called not later than next_deadline(), which changes with every request.
  void tick(Time now);
  Time next_deadline() const;

  // Answers all that wait with a failure: there will be no coordinator any more.
  void close(const std::string& reason);

  std::vector<Answer> take_answers() { return std::exchange(answers_, {}); }

  const std::optional<Failure>& failure() const { return failure_; }
  // Whether everybody but the culprit, and those whose connection broke, has been answered with the failure.
  bool failure_delivered() const;
  // Whether all processes have registered.
  bool started() const { return started_; }
  // Whether all have gone through shutdown.
  bool over() const { return over_; }
  // How long a heartbeat is held.
  std::chrono::nanoseconds heartbeat_interval() const { return options_.heartbeat_timeout / 4; }

 private:
  struct Process {
    bool registered = false;
    uint64_t incarnation = 0;
    Peer peer;
    uint64_t registration = 0;  // the call that waits
    Time register_deadline{};
    std::chrono::nanoseconds register_timeout{};
    Time last_heard{};
    std::optional<Time> disconnected;
    bool notified = false;   // of the failure
    uint64_t heartbeat = 0;  // the call that is held
    Time heartbeat_due{};
    Progress progress;
    Time progress_received{};  // when it was notified
    int64_t first_step = -1;
    Time last_progress{};  // when it was last seen to have changed
  };

  void answer(uint64_t call, Outcome outcome, std::string text);
  void answer_failed(uint64_t call);
  void set_failure(Failure failure);
  Process& at(int process) { return processes_[static_cast<size_t>(process)]; }
  const Process& at(int process) const { return processes_[static_cast<size_t>(process)]; }
  std::string label(int process) const;
  bool is_known(const Request& request) const;

  void handle_register(uint64_t call, const Request& request, const request::Register& what, const std::string& address,
                       Time now);
  std::string refusal(const Request& request, const request::Register& what, Outcome& outcome) const;
  std::string describe_attendance() const;
  void start(Time now);
  void handle_heartbeat(uint64_t call, int process, const request::Heartbeat& what, Time now);
  void handle_fail(uint64_t call, int process, const request::Fail& what, Time now);
  void handle_leave(uint64_t call, int process);
  void finish();

  void compensate_for_suspension(Time now);
  void check_registrations(Time now);
  void check_lost(Time now);
  void check_stuck(Time now);
  Time lost_at(const Process& process) const;
  bool is_stuck(const Process& process) const;
  Failure failure_of(int process, const std::string& fact) const;

  const CoordinatorOptions options_;
  std::vector<Answer> answers_;
  std::vector<Process> processes_;
  KeyTable keys_;
  Barriers barriers_;
  bool started_ = false;
  bool over_ = false;
  std::optional<Failure> failure_;
  std::optional<Failure> consequence_;  // of a cause that may still show
  Time consequence_due_{};
  Time last_tick_;
};

}  // namespace lockstep
