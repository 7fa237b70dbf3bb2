#include "lockstep/meter.h"

#include <algorithm>

namespace lockstep {

Meter::Meter(int64_t warmup_steps, Clock::time_point (*now)()) : now_(now), warmup_(warmup_steps), since_(now()) {}

double Meter::active() const {
  return running_ ? active_ + std::chrono::duration<double>(now_() - since_).count() : active_;
}

void Meter::pause() {
  active_ = active();
  running_ = false;
}

void Meter::resume() {
  if (running_) return;
  since_ = now_();
  running_ = true;
}

void Meter::step(int64_t examples, int64_t steps) {
  const double now = active();
  const bool counts = running_ && steps_ >= warmup_;
  steps_ += steps;
  if (counts) {
    const double seconds = now - step_start_;
    for (int64_t i = 0; i < steps; ++i, ++counted_) {
      recent_seconds_[counted_ % kRecent] = seconds / static_cast<double>(steps);
      recent_examples_[counted_ % kRecent] = examples;
    }
    total_ += seconds;
    examples_ += steps * examples;
    for (int i = 0; i < kPhases; ++i) phases_[i] += step_phases_[i];
  }
  for (double& seconds : step_phases_) seconds = 0;
  step_start_ = now;
  resume();
}

Meter::Report Meter::report() const {
  Report out{.steps = steps_};
  if (counted_ == 0) return out;
  const int64_t recent = std::min(counted_, kRecent);
  double seconds = 0;
  int64_t examples = 0;
  for (int64_t i = 0; i < recent; ++i) {
    seconds += recent_seconds_[i];
    examples += recent_examples_[i];
  }
  // 0 if the clock did not advance.
  const auto ratio = [](double a, double b) { return b > 0 ? a / b : 0; };
  out.step_seconds = total_ / static_cast<double>(counted_);
  out.recent_step_seconds = seconds / static_cast<double>(recent);
  out.examples_per_second = ratio(static_cast<double>(examples), seconds);
  out.mean_examples_per_second = ratio(static_cast<double>(examples_), total_);
  const auto share = [&](Phase phase) { return std::min(1.0, ratio(phases_[static_cast<int>(phase)], total_)); };
  out.data = share(Phase::data);
  out.compute = share(Phase::compute);
  out.communication = share(Phase::communication);
  out.counted_steps = counted_;
  out.seconds = total_;
  out.data_seconds = phases_[static_cast<int>(Phase::data)];
  return out;
}

Meter::Timer::Timer(Meter& meter, Phase phase) : meter_(meter), phase_(phase), start_(meter.active()) {}

Meter::Timer::~Timer() { meter_.step_phases_[static_cast<int>(phase_)] += meter_.active() - start_; }

}  // namespace lockstep
