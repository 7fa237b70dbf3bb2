// Where the time of a run goes. Used by one thread; nothing here allocates.
#pragma once

#include <chrono>
#include <cstdint>

namespace lockstep {

class Meter {
 public:
  enum class Phase { data, compute, communication, other };
  using Clock = std::chrono::steady_clock;

  // The first step begins now. Steps before this many, and those at once with them, are left out of rates and shares:
  // they compile. Tests give a clock of their own.
  explicit Meter(int64_t warmup_steps = 1, Clock::time_point (*now)() = &Clock::now);

  // Adds the time of a scope, less the pauses in it, to a phase: { auto t = meter.time(Phase::data); ... }
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
  // A step of so many examples is over and the next begins; or several at once, which took the same time each.
  void step(int64_t examples, int64_t steps = 1);
  // Time that is not training (evaluation, saving) does not count between these two; calling one twice does no harm. A
  // step that ends within a pause is left out of rates, and ends the pause.
  void pause();
  void resume();

  struct Report {
    int64_t steps = 0;               // all, those that compile included; what follows is 0 before the first counted one
    double step_seconds = 0;         // mean over all counted steps
    double recent_step_seconds = 0;  // over the last few
    double examples_per_second = 0;  // recent
    double mean_examples_per_second = 0;
    double data = 0, compute = 0, communication = 0;  // shares of the time, 0 to 1
  };
  Report report() const;

 private:
  static constexpr int64_t kRecent = 64;
  static constexpr int kPhases = 4;
  // Seconds since construction, less pauses.
  double active() const;

  Clock::time_point (*now_)();
  int64_t warmup_, steps_ = 0, counted_ = 0, examples_ = 0;
  double total_ = 0;                                         // seconds of the counted steps
  double phases_[kPhases] = {}, step_phases_[kPhases] = {};  // of the counted steps; of the present one
  double recent_seconds_[kRecent] = {};
  int64_t recent_examples_[kRecent] = {};
  double active_ = 0, step_start_ = 0;  // active time at the last pause, and when the present step began
  Clock::time_point since_;             // the last resume
  bool running_ = true;
};

}  // namespace lockstep
