#include "lockstep/schedules.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/names.h"
#include "lockstep/create.h"
#include "lockstep/math.h"
#include "nn/rate.h"

namespace lockstep {
namespace {

constexpr double kPi = 3.14159265358979323846;

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names{"constant", "cosine", "warmup_cosine", "exponential",
                                              "step",     "linear", "inverse_sqrt",  "wsd"};
  return names;
}

using ScheduleKind = Schedule::Kind;

bool has_warmup(ScheduleKind kind) {
  return kind == ScheduleKind::warmup_cosine || kind == ScheduleKind::linear || kind == ScheduleKind::inverse_sqrt ||
         kind == ScheduleKind::wsd;
}

// Whether the rate reaches `end` at total_steps.
bool has_end(ScheduleKind kind) {
  return kind == ScheduleKind::cosine || kind == ScheduleKind::warmup_cosine || kind == ScheduleKind::linear ||
         kind == ScheduleKind::wsd;
}

int64_t warmup_of(const Schedule& s) { return has_warmup(s.kind) ? s.warmup_steps : 0; }

// linear, wsd: the last steps, over which the rate falls.
int64_t falling_steps(const Schedule& s) {
  if (s.kind == ScheduleKind::linear) return s.total_steps - s.warmup_steps;
  return s.decay_steps > 0 ? s.decay_steps : (s.total_steps + 9) / 10;
}

// inverse_sqrt: the step until which the rate is not yet divided.
double plateau_end(const Schedule& s) { return std::max(static_cast<double>(s.warmup_steps), 1.0); }

void check_run_length(const Schedule& s) {
  const std::string kind = to_string(s.kind);
  if (s.total_steps < 1)
    throw_error("schedule: total_steps of {} is {}; set it to the length of the run", kind, s.total_steps);
  if (s.warmup_steps > s.total_steps)
    throw_error("schedule: {} warm-up steps are more than the {} steps of the run; shorten the warm-up", s.warmup_steps,
                s.total_steps);
  if (s.kind == ScheduleKind::wsd && falling_steps(s) > s.total_steps - s.warmup_steps)
    throw_error("schedule: {} warm-up steps and {} decay steps are more than the {} steps of the run; shorten one",
                s.warmup_steps, falling_steps(s), s.total_steps);
}

}  // namespace

namespace detail {

Array rate(const Schedule& s, const Array& step) {
  check(s);
  if (!is_integer(step.dtype()))
    throw_error("schedule: the step is {}; steps are integers, use astype(step, i32)", to_string(step.type()));
  // In f64 every step number is exact, and cancellation is too small to matter after rounding to f32.
  const Array n = astype(step, f64);
  const auto number = [&](double value) { return full_like(n, Array(value), f64); };
  switch (s.kind) {
    case Schedule::Kind::constant:
      return number(s.peak);
    case Schedule::Kind::cosine:
    case Schedule::Kind::warmup_cosine: {
      const auto warmup = static_cast<double>(warmup_of(s)), total = static_cast<double>(s.total_steps);
      const Array angle = (n - warmup) * (kPi / std::max(total - warmup, 1.0));
      const Array fall = s.end + (0.5 * (s.peak - s.end)) * (1.0 + cos(angle));
      const Array rise = n * (s.peak / std::max(warmup, 1.0));
      return where(n >= total, number(s.end), where(n < warmup, rise, fall));
    }
    case Schedule::Kind::exponential:
      return s.peak * exp(n * (std::log(s.decay) / static_cast<double>(s.every)));
    case Schedule::Kind::step:
      return s.peak * exp(floor(n / static_cast<double>(s.every)) * std::log(s.decay));
    case Schedule::Kind::linear:
    case Schedule::Kind::wsd: {
      const auto warmup = static_cast<double>(s.warmup_steps), total = static_cast<double>(s.total_steps);
      const auto falling = static_cast<double>(falling_steps(s));
      const Array rise = n * (s.peak / std::max(warmup, 1.0));
      const Array fall = s.end + ((s.peak - s.end) / std::max(falling, 1.0)) * (total - n);
      const Array before = where(n < warmup, rise, where(n < total - falling, number(s.peak), fall));
      return where(n >= total, number(s.end), before);
    }
    case Schedule::Kind::inverse_sqrt: {
      const Array rise = n * (s.peak / plateau_end(s));
      const Array fall = s.peak * sqrt(plateau_end(s) / maximum(n, plateau_end(s)));
      return where(n < static_cast<double>(s.warmup_steps), rise, fall);
    }
  }
  LOCKSTEP_CHECK(false, "schedule kind {}", static_cast<int>(s.kind));
  return {};
}

void check_not_negative(const char* what, const char* name, double value) {
  if (!(value >= 0) || std::isinf(value))
    throw_error("{}: the {} is {}; it must be 0 or a positive number", what, name, value);
}

}  // namespace detail

Array Schedule::operator()(const Array& step) const { return astype(detail::rate(*this, step), f32); }

double Schedule::at(int64_t step) const {
  check(*this);
  const auto n = static_cast<double>(step);
  switch (kind) {
    case Kind::constant:
      return peak;
    case Kind::cosine:
    case Kind::warmup_cosine: {
      if (step >= total_steps) return end;
      const int64_t warmup = warmup_of(*this);
      if (step < warmup) return n * (peak / static_cast<double>(warmup));
      const double angle = (n - static_cast<double>(warmup)) * (kPi / static_cast<double>(total_steps - warmup));
      return end + 0.5 * (peak - end) * (1 + std::cos(angle));
    }
    case Kind::exponential:
      return peak * std::exp(n * (std::log(decay) / static_cast<double>(every)));
    case Kind::step:
      return peak * std::exp(std::floor(n / static_cast<double>(every)) * std::log(decay));
    case Kind::linear:
    case Kind::wsd: {
      if (step >= total_steps) return end;
      if (step < warmup_steps) return n * (peak / static_cast<double>(warmup_steps));
      const int64_t falling = falling_steps(*this);
      if (step < total_steps - falling) return peak;
      return end + ((peak - end) / static_cast<double>(falling)) * static_cast<double>(total_steps - step);
    }
    case Kind::inverse_sqrt:
      if (step < warmup_steps) return n * (peak / plateau_end(*this));
      return peak * std::sqrt(plateau_end(*this) / std::max(n, plateau_end(*this)));
  }
  LOCKSTEP_CHECK(false, "schedule kind {}", static_cast<int>(kind));
  return {};
}

void check(const Schedule& s) {
  detail::check_not_negative("schedule", "peak rate", s.peak);
  detail::check_not_negative("schedule", "end rate", s.end);
  if (s.warmup_steps < 0) throw_error("schedule: {} warm-up steps; the number must not be negative", s.warmup_steps);
  if (s.warmup_steps > 0 && !has_warmup(s.kind))
    throw_error(
        "schedule: {} warm-up steps, but {} has no warm-up; choose warmup_cosine, linear, inverse_sqrt or wsd, or set "
        "it to 0",
        s.warmup_steps, to_string(s.kind));
  if (s.decay_steps < 0) throw_error("schedule: {} decay steps; the number must not be negative", s.decay_steps);
  if (s.decay_steps > 0 && s.kind != ScheduleKind::wsd)
    throw_error("schedule: {} decay steps, but only wsd has them; choose wsd, or set it to 0", s.decay_steps);
  if (has_end(s.kind)) check_run_length(s);
  if (s.kind == Schedule::Kind::exponential || s.kind == Schedule::Kind::step) {
    if (!(s.decay > 0) || std::isinf(s.decay))
      throw_error("schedule: the decay is {}; it must be a positive number, such as 0.1", s.decay);
    if (s.every < 1) throw_error("schedule: every is {}; give a number of steps of at least 1", s.every);
  }
}

Schedule::Kind schedule_kind(std::string_view name) {
  for (size_t i = 0; i < schedule_names().size(); ++i)
    if (name == schedule_names()[i]) return static_cast<Schedule::Kind>(i);
  throw_unknown_name("schedule", name, schedule_names());
}

std::string to_string(Schedule::Kind kind) { return schedule_names()[static_cast<size_t>(kind)]; }

}  // namespace lockstep
