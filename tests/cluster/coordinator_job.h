// A Coordinator with a manual clock, whose answers are read as text.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/coordinator.h"

namespace lockstep {

using namespace std::chrono_literals;

class Job {
 public:
  explicit Job(CoordinatorOptions options) : count_(options.process_count), coordinator_(std::move(options), now_) {}

  // Timeouts so long that no process is lost or stuck.
  static CoordinatorOptions patient(int count) {
    return {.process_count = count, .heartbeat_timeout = 24h, .first_step_timeout = 48h, .step_timeout = 48h};
  }
  void register_all() {
    for (int i = 0; i < count_; ++i) register_process(i);
    take();
  }

  uint64_t register_process(int process, request::Register what = {}) {
    if (!what.process_count) what.process_count = count_;
    if (what.host.empty()) what.host = "n" + std::to_string(process);
    if (what.timeout == 0ns) what.timeout = 300s;
    return ask(process, what);
  }
  // Sends a request as `process`; a given incarnation impersonates it.
  uint64_t ask(int process, decltype(Request::what) what, uint64_t incarnation = 0) {
    const uint64_t call = ++calls_;
    coordinator_.handle(call, {process, incarnation ? incarnation : own(process), std::move(what)},
                        "10.0.0." + std::to_string(process), now_);
    take();
    return call;
  }
  uint64_t beat(int process, Progress progress = {}) { return ask(process, request::Heartbeat{progress}); }
  void beat_all() {
    for (int i = 0; i < count_; ++i) beat(i, progress_[i]);
  }
  void set_progress(int process, Progress progress) { progress_[process] = std::move(progress); }
  void cancel(uint64_t call) {
    coordinator_.cancel(call, now_);
    take();
  }

  // Advances the clock and ticks as CoordinatorHost does. With beats, all processes send heartbeats every `interval`.
  void pass(std::chrono::nanoseconds duration) {
    const auto until = now_ + duration;
    while (coordinator_.next_deadline() <= until) {
      now_ = std::max(now_, coordinator_.next_deadline());
      coordinator_.tick(now_);
      take();
    }
    now_ = until;
    coordinator_.tick(now_);
    take();
  }
  void pass_with_beats(std::chrono::nanoseconds duration, std::chrono::nanoseconds interval) {
    for (std::chrono::nanoseconds done{}; done < duration; done += interval) {
      pass(interval);
      beat_all();
    }
  }
  // Advances the clock without ticks, as if the coordinator's process was suspended.
  void sleep(std::chrono::nanoseconds duration) { now_ += duration; }

  // "waiting", "ok", "ok: text", "timeout: text", ...
  std::string answer(uint64_t call) const {
    const auto found = answers_.find(call);
    if (found == answers_.end()) return "waiting";
    static const char* const kNames[] = {"ok",      "absent", "text_requested", "over", "refused",
                                         "timeout", "failed", "unreachable",    "taken"};
    const std::string name = kNames[static_cast<size_t>(found->second.outcome)];
    return found->second.text.empty() ? name : name + ": " + found->second.text;
  }
  const Answer& full(uint64_t call) const { return answers_.at(call); }
  Coordinator& coordinator() { return coordinator_; }
  std::string failure() const {
    return coordinator_.failure() ? describe(*coordinator_.failure()) : std::string("none");
  }
  static uint64_t own(int process) { return 1000 + static_cast<uint64_t>(process); }

 private:
  void take() {
    for (Answer& answer : coordinator_.take_answers()) {
      const uint64_t call = answer.call;
      EXPECT_TRUE(answers_.emplace(call, std::move(answer)).second) << "call " << call << " was answered twice";
    }
  }

  const int count_;
  Coordinator::Time now_ = Coordinator::Time(1000h);
  Coordinator coordinator_;
  uint64_t calls_ = 0;
  std::map<uint64_t, Answer> answers_;
  std::map<int, Progress> progress_;
};

}  // namespace lockstep
