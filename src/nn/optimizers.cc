#include "lockstep/optimizers.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/names.h"
#include "lockstep/create.h"
#include "lockstep/math.h"
#include "lockstep/reduce.h"
#include "nn/rate.h"

namespace lockstep {
namespace {

using Kind = Optimizer::Kind;

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names{"sgd", "momentum", "nesterov", "adam", "adamw"};
  return names;
}

bool is_adam(const Optimizer& o) { return o.kind == Kind::adam || o.kind == Kind::adamw; }
bool has_momentum(const Optimizer& o) { return o.kind == Kind::momentum || o.kind == Kind::nesterov; }

void check_fraction(const char* name, double value) {
  if (!(value >= 0 && value < 1))
    throw_error("optimizer: {} is {}; it must be at least 0 and less than 1", name, value);
}

void check_parameters(const char* what, const std::vector<Array>& params) {
  for (const Array& p : params)
    if (p.dtype() != f32 && p.dtype() != f64)
      throw_error(
          "{}: a parameter is {}; use f32 or f64 parameters and choose a lower compute precision with Precision", what,
          to_string(p.type()));
}

// The f64 scalars of one step, computed once for all parameters.
struct StepScalars {
  Array rate;
  // Adam: factors of the two means. Both correct the bias (1 / (1 - beta^t)); the first includes the rate.
  Array first_scale, second_scale;
  Array decay;  // adamw: rate * weight_decay
};

StepScalars scalars_of(const Optimizer& o, const Array& step) {
  StepScalars out;
  out.rate = detail::rate(o.schedule, step);
  if (!is_adam(o)) return out;
  const Array t = astype(step, f64) + 1.0;
  const auto corrected = [&](double beta) { return -expm1(t * std::log(beta)); };
  out.first_scale = out.rate / corrected(o.beta1);
  out.second_scale = 1.0 / corrected(o.beta2);
  out.decay = out.rate * o.weight_decay;
  return out;
}

// A parameter with its optimizer state.
struct Leaf {
  Array param, first, second;
};

Leaf update_leaf(const Optimizer& o, const StepScalars& n, const Leaf& old, Array g, bool decays) {
  const Array& p = old.param;
  const auto scalar = [&](const Array& x) { return astype(x, p.dtype()); };
  if (decays && o.kind != Kind::adamw) g = g + o.weight_decay * p;
  if (is_adam(o)) {
    const Array m = o.beta1 * old.first + (1 - o.beta1) * g;
    const Array v = o.beta2 * old.second + (1 - o.beta2) * square(g);
    Array move = scalar(n.first_scale) * m / (sqrt(v * scalar(n.second_scale)) + o.epsilon);
    // Added to the update before it is applied, so that the parameter is rounded only once.
    if (decays && o.kind == Kind::adamw) move = move + scalar(n.decay) * p;
    return {p - move, m, v};
  }
  const Array rate = scalar(n.rate);
  if (!has_momentum(o)) return {p - rate * g, {}, {}};
  const Array v = o.momentum * old.first + g;
  return {p - rate * (o.kind == Kind::nesterov ? o.momentum * v + g : v), v, {}};
}

bool is_decayed(const Optimizer& o, const std::string& path) {
  return o.weight_decay > 0 && std::none_of(o.no_decay.begin(), o.no_decay.end(),
                                            [&](const std::string& pattern) { return matches(pattern, path); });
}

void check_count(const char* name, size_t actual, size_t expected) {
  if (actual != expected)
    throw_error("update: {} {}, expected {}; give one per parameter, and the state that create_state() returned",
                actual, name, expected);
}

}  // namespace

void check(const Optimizer& o) {
  check(o.schedule);
  if (has_momentum(o)) check_fraction("momentum", o.momentum);
  if (is_adam(o)) {
    check_fraction("beta1", o.beta1);
    check_fraction("beta2", o.beta2);
    detail::check_not_negative("optimizer", "epsilon", o.epsilon);
  }
  detail::check_not_negative("optimizer", "weight decay", o.weight_decay);
  detail::check_not_negative("optimizer", "clip norm", o.clip_norm);
}

Optimizer::Kind optimizer_kind(std::string_view name) {
  for (size_t i = 0; i < optimizer_names().size(); ++i)
    if (name == optimizer_names()[i]) return static_cast<Kind>(i);
  throw_unknown_name("optimizer", name, optimizer_names());
}

std::string to_string(Optimizer::Kind kind) { return optimizer_names()[static_cast<size_t>(kind)]; }

OptimizerState create_state(const Optimizer& o, const std::vector<Array>& params) {
  check(o);
  check_parameters("create_state", params);
  OptimizerState state{.step = zeros({}, i32), .first = {}, .second = {}};
  for (const Array& p : params) {
    if (is_adam(o) || has_momentum(o)) state.first.push_back(zeros_like(p));
    if (is_adam(o)) state.second.push_back(zeros_like(p));
  }
  return state;
}

Update update(const Optimizer& o, const std::vector<std::string>& paths, const std::vector<Array>& params,
              const std::vector<Array>& grads, const OptimizerState& state, const Array& norm) {
  check(o);
  check_parameters("update", params);
  check_count("paths", paths.size(), params.size());
  check_count("gradients", grads.size(), params.size());
  check_count("first moments", state.first.size(), is_adam(o) || has_momentum(o) ? params.size() : 0);
  check_count("second moments", state.second.size(), is_adam(o) ? params.size() : 0);
  for (size_t i = 0; i < params.size(); ++i)
    if (grads[i].shape() != params[i].shape())
      throw_error("update: the gradient of {} is {}, but the parameter is {}; the shapes must be equal", paths[i],
                  to_string(grads[i].shape()), to_string(params[i].shape()));
  const StepScalars scalars = scalars_of(o, state.step);
  Array clip_factor;
  if (o.clip_norm > 0) clip_factor = o.clip_norm / maximum(norm.defined() ? norm : global_norm(grads), o.clip_norm);
  Update next{.params = {}, .state = {.step = state.step + 1, .first = {}, .second = {}}};
  for (size_t i = 0; i < params.size(); ++i) {
    Array g = astype(grads[i], params[i].dtype());
    if (clip_factor.defined()) g = g * astype(clip_factor, g.dtype());
    const Leaf old{params[i], state.first.empty() ? Array() : state.first[i],
                   state.second.empty() ? Array() : state.second[i]};
    Leaf leaf = update_leaf(o, scalars, old, std::move(g), is_decayed(o, paths[i]));
    next.params.push_back(std::move(leaf.param));
    if (leaf.first.defined()) next.state.first.push_back(std::move(leaf.first));
    if (leaf.second.defined()) next.state.second.push_back(std::move(leaf.second));
  }
  return next;
}

Array global_norm(const std::vector<Array>& leaves) {
  Array squares = zeros({});
  for (const Array& leaf : leaves)
    squares = squares + astype(sum(square(leaf.dtype() == f64 ? leaf : astype(leaf, f32))), f32);
  return sqrt(squares);
}

}  // namespace lockstep
