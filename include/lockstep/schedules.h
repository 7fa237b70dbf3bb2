// Learning rates as functions of the step. A Schedule is a plain value; it is evaluated inside the compiled step, so
// that one compiled step serves the whole run and a resumed run sees the same rates. Safe from any thread.
//
//   const Schedule s{.kind = Schedule::Kind::warmup_cosine, .peak = 1e-3, .warmup_steps = 100, .total_steps = 4690};
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/array.h"

namespace lockstep {

struct Schedule {
  enum class Kind : uint8_t { constant, cosine, warmup_cosine, exponential, step };

  Kind kind = Kind::constant;
  double peak = 1e-3;        // the rate at the start, or at the end of the warm-up
  double end = 0;            // cosine: the rate at total_steps and after
  int64_t warmup_steps = 0;  // warmup_cosine: the rate rises linearly from 0 for so many steps
  int64_t total_steps = 0;   // cosine: when `end` is reached
  double decay = 0.1;        // exponential, step: the factor per `every` steps
  int64_t every = 1;         // exponential: continuously, step: at once, every so many steps

  // The rate of update number `step` (0 is the first): f32, of a traced or concrete integer, or of each of several.
  // Computed in f64 and rounded once, so that it is at(step) in f32.
  Array operator()(const Array& step) const;
  // The same for a number, in double.
  double at(int64_t step) const;
};

// Throws Error when the numbers make no sense, naming the one (a negative rate, cosine without total_steps, a warm-up
// longer than the run, a warm-up of a kind that has none ...).
void check(const Schedule&);

// "constant", "cosine", "warmup_cosine", "exponential", "step" and back; throws Error with the list for another name.
Schedule::Kind schedule_kind(std::string_view name);
std::string to_string(Schedule::Kind);

}  // namespace lockstep
