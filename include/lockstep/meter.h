// Measures where the time of a run goes: examples per second, and the shares of data, compute and communication.
// Not thread-safe; never allocates.
#pragma once

#include <chrono>
#include <cstdint>

namespace lockstep {

class Meter {
 public:
  enum class Phase { data, compute, communication, other };
  using Clock = std::chrono::steady_clock;

  // Starts the first step. The first `warmup_steps` steps, which include compilation, do not count towards rates and
  // shares; neither do steps reported in the same call as one of them. Tests pass their own clock.
  explicit Meter(int64_t warmup_steps = 1, Clock::time_point (*now)() = &Clock::now);

  // Adds the time of a scope, without its pauses, to a phase: { auto t = meter.time(Phase::data); ... }
  class Timer {
   public:
    ~Timer();
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    friend class Meter;
    Timer(Meter& meter, Phase phase);
    Meter& meter_;
    Phase phase_;
    double start_;
  };
  Timer time(Phase phase) { return {*this, phase}; }
  // Ends the current step, which had this many examples, and starts the next. Several steps that ran together may be
  // ended in one call; each counts with the same share of the time.
  void step(int64_t examples, int64_t steps = 1);
  // Time between pause() and resume() (evaluation, saving) does not count. Both are idempotent. A step that ends within
  // a pause is excluded from rates and ends the pause.
  void pause();
  void resume();

  struct Report {
    int64_t steps = 0;        // all steps, including warm-up; the other fields are 0 before the first counted step
    double step_seconds = 0;  // mean over all counted steps
    double recent_step_seconds = 0;  // over the last few
    double examples_per_second = 0;  // recent
    double mean_examples_per_second = 0;
    double data = 0, compute = 0, communication = 0;  // shares of the time, 0 to 1
    int64_t counted_steps = 0;                        // without warm-up
    double seconds = 0, data_seconds = 0;             // of all counted steps
  };
  Report report() const;

 private:
  static constexpr int64_t kRecent = 64;
  static constexpr int kPhases = 4;
  // Seconds since construction, without pauses.
  double active() const;

  Clock::time_point (*now_)();
  int64_t warmup_, steps_ = 0, counted_ = 0, examples_ = 0;
  double total_ = 0;                                         // seconds of the counted steps
  double phases_[kPhases] = {}, step_phases_[kPhases] = {};  // of the counted steps; of the current step
  double recent_seconds_[kRecent] = {};
  int64_t recent_examples_[kRecent] = {};
  double active_ = 0, step_start_ = 0;  // active time at the last pause; at the start of the current step
  Clock::time_point since_;             // the last resume
  bool running_ = true;
};

}  // namespace lockstep
