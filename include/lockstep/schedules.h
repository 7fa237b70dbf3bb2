// Learning rate schedules: the learning rate as a function of the step. A Schedule is a plain value. It is evaluated
// inside the compiled step, so a run compiles one step only, and a resumed run continues with the same rates. Safe from
// any thread.
//
//   const Schedule s{.kind = Schedule::Kind::warmup_cosine, .peak = 1e-3, .warmup_steps = 100, .total_steps = 4690};
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/array.h"

namespace lockstep {

struct Schedule {
  enum class Kind : uint8_t { constant, cosine, warmup_cosine, exponential, step, linear, inverse_sqrt, wsd };

  Kind kind = Kind::constant;
  double peak = 1e-3;  // the rate at the start, or at the end of the warm-up
  // Of the kinds that fall to an end (cosine, warmup_cosine, linear, wsd): the rate from total_steps on.
  double end = 0;
  // warmup_cosine, linear, inverse_sqrt, wsd: steps over which the rate rises linearly from 0.
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;  // cosine, warmup_cosine, linear, wsd: the step at which `end` is reached
  double decay = 0.1;       // exponential, step: the factor per `every` steps
  int64_t every = 1;        // steps per factor; `exponential` decays continuously, `step` once every `every` steps
  int64_t decay_steps = 0;  // wsd: the last steps, over which the rate falls linearly; 0: a tenth of total_steps

  // The f32 rate of update number `step` (the first is 0), for a traced or concrete integer, or elementwise for
  // several. Computed in f64 and rounded once, so it equals at(step) rounded to f32.
  Array operator()(const Array& step) const;
  // The same in double.
  double at(int64_t step) const;
};

// Throws Error when a value is invalid, naming the field: a negative rate, cosine without total_steps, a warm-up longer
// than the run, a warm-up or decay_steps for a kind that does not use them.
void check(const Schedule&);

// Convert between kinds and their names, such as "warmup_cosine". Throws Error for an unknown name, listing the known
// ones.
Schedule::Kind schedule_kind(std::string_view name);
std::string to_string(Schedule::Kind);

}  // namespace lockstep
