// StepTrace: the trace of some steps of a run. Used by the thread that trains.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lane/trace.h"
#include "lockstep/engine.h"

namespace lockstep::detail {

class StepTrace {
 public:
  // A message for the user; `problem`: something of the trace is missing.
  using Note = std::function<void(const std::string& text, bool problem)>;
  explicit StepTrace(const TraceOptions& options) : options_(options) {}
  ~StepTrace();  // without write(): drops the trace of a run that has failed
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Before steps are launched that follow `done` steps.
  void before_step(int64_t done) {
    if (!options_.file.empty() && state_ == State::waiting && done + 1 >= options_.first_step) begin(done);
  }
  // After the steps up to `done` were launched.
  void after_step(int64_t done) {
    if (state_ == State::on && done >= options_.last_step) end();
  }
  // Writes the files. REQUIRES: all processes call it.
  void write(const Note& note);

  // Whether the traced steps begin or end after `done` steps: then no step may be in flight.
  bool is_boundary(int64_t done) const {
    return !options_.file.empty() && (done == options_.first_step - 1 || done == options_.last_step);
  }
  // The number of steps after `done` that may be launched together; each traced step is launched alone.
  int64_t steps_until(int64_t done) const;

 private:
  enum class State { waiting, on, done };
  void begin(int64_t done);
  void end();

  const TraceOptions options_;
  State state_ = State::waiting;
  std::vector<TraceSpan> spans_;
};

}  // namespace lockstep::detail
