#include "lockstep/optimizers.h"

#include <cmath>
#include <map>

#include "base/check.h"
#include "base/names.h"
#include "lockstep/create.h"
#include "lockstep/math.h"
#include "lockstep/reduce.h"
#include "nn/optimizers_rules.h"
#include "nn/rate.h"
#include "nn/trained_leaves.h"

namespace lockstep {
namespace {

using Kind = Optimizer::Kind;

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names{"sgd",   "momentum", "nesterov",  "adam",
                                              "adamw", "lion",     "adafactor", "muon"};
  return names;
}

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

void check_group(const ParameterGroup& group) {
  if (group.pattern.empty()) throw_error("group: the pattern is empty; write one, such as \"dense/*\"");
  const std::string what = "group: \"" + group.pattern + "\"";
  detail::check_not_negative(what.c_str(), "rate factor", group.rate);
  if (group.weight_decay) detail::check_not_negative(what.c_str(), "weight decay", *group.weight_decay);
}

// The values that a kind uses.
void check_values(const Optimizer& o, Kind kind) {
  if (detail::has_momentum(kind)) check_fraction("momentum", o.momentum);
  if (detail::is_adam(kind) || kind == Kind::muon) {
    check_fraction("beta1", o.beta1);
    check_fraction("beta2", o.beta2);
    detail::check_not_negative("optimizer", "epsilon", o.epsilon);
  }
  if (kind == Kind::lion) {
    check_fraction("beta1", o.beta1);
    check_fraction("lion_beta2", o.lion_beta2);
  }
  if (kind == Kind::muon) {
    check_fraction("muon_momentum", o.muon_momentum);
    detail::check_not_negative("optimizer", "adam_rate", o.adam_rate);
  }
}

// The scalars of a step, computed once for all parameters with the same rule.
class ScalarTable {
 public:
  ScalarTable(const Optimizer& o, const Array& step) : o_(o), step_(step), rate_(detail::rate(o.schedule, step)) {}

  detail::StepScalars of(const ParameterRule& rule) {
    const Kind family = rule.kind == Kind::adam ? Kind::adamw : rule.kind;
    const auto [at, fresh] = scalars_.try_emplace({family, rule.rate});
    if (fresh) at->second = make(rule);
    detail::StepScalars out = at->second;
    if (rule.weight_decay > 0 && rule.weight_decay != o_.weight_decay && detail::decouples_decay(rule.kind)) {
      const auto [decay, missing] = decays_.try_emplace({rule.rate, rule.weight_decay});
      if (missing) decay->second = out.rate * rule.weight_decay;
      out.decay = decay->second;
    }
    return out;
  }

 private:
  detail::StepScalars make(const ParameterRule& rule) const {
    detail::StepScalars out;
    out.rate = rule.rate == 1 ? rate_ : rate_ * rule.rate;
    if (detail::is_adam(rule.kind)) {
      const Array t = astype(step_, f64) + 1.0;
      const auto corrected = [&](double beta) { return -expm1(t * std::log(beta)); };
      out.first_scale = out.rate / corrected(o_.beta1);
      out.second_scale = 1.0 / corrected(o_.beta2);
    }
    if (rule.kind == Kind::adafactor) {
      constexpr double kPower = -0.8;  // the new value has the weight t^-0.8
      const Array exponent = kPower * log(astype(step_, f64) + 1.0);
      out.keep = -expm1(exponent);
      out.mix = exp(exponent);
    }
    if (detail::is_adam(rule.kind) || detail::decouples_decay(rule.kind)) out.decay = out.rate * o_.weight_decay;
    return out;
  }

  const Optimizer& o_;
  Array step_, rate_;
  std::map<std::pair<Kind, double>, detail::StepScalars> scalars_;
  std::map<std::pair<double, double>, Array> decays_;
};

detail::ParameterArrays update_parameter(const Optimizer& o, const ParameterRule& rule, const detail::StepScalars& n,
                                         const detail::ParameterArrays& old, Array g) {
  const Array& p = old.param;
  const auto scalar = [&](const Array& x) { return astype(x, p.dtype()); };
  const bool decays = rule.weight_decay > 0;
  if (decays && !detail::decouples_decay(rule.kind)) g = g + rule.weight_decay * p;
  if (rule.kind == Kind::adafactor) return detail::update_adafactor(rule, n, old, g);
  if (rule.kind == Kind::muon) return detail::update_muon(o, rule, n, old, g);
  if (detail::is_adam(rule.kind)) {
    const Array m = o.beta1 * old.first + (1 - o.beta1) * g;
    const Array v = o.beta2 * old.second + (1 - o.beta2) * square(g);
    Array move = scalar(n.first_scale) * m / (sqrt(v * scalar(n.second_scale)) + o.epsilon);
    // Added to the update before it is applied, so that the parameter is rounded only once.
    if (decays && rule.kind == Kind::adamw) move = move + scalar(n.decay) * p;
    return {.param = p - move, .first = m, .second = v};
  }
  const Array rate = scalar(n.rate);
  if (rule.kind == Kind::lion) {
    // b * m + (1 - b) * g as m + (1 - b) * (g - m). The common difference lets both results be one pass over memory.
    const Array difference = g - old.first;
    Array move = rate * sign(old.first + (1 - o.beta1) * difference);
    if (decays) move = move + scalar(n.decay) * p;
    return {.param = p - move, .first = old.first + (1 - o.lion_beta2) * difference};
  }
  if (!detail::has_momentum(rule.kind)) return {.param = p - rate * g};
  const Array v = o.momentum * old.first + g;
  return {.param = p - rate * (rule.kind == Kind::nesterov ? o.momentum * v + g : v), .first = v};
}

std::vector<Type> types_of(const std::vector<Array>& params) {
  std::vector<Type> out;
  for (const Array& p : params) out.push_back(p.type());
  return out;
}

void check_count(const char* name, size_t actual, size_t expected) {
  if (actual != expected)
    throw_error("update: {} {}, expected {}; give one per parameter, and the state that create_state() returned",
                actual, name, expected);
}

void check_state(const OptimizerState& state, const std::vector<StateArray>& list) {
  const auto check_member = [&](const char* name, std::vector<Array> OptimizerState::*member) {
    size_t expected = 0;
    for (const StateArray& each : list) expected += each.member == member ? 1 : 0;
    check_count(name, (state.*member).size(), expected);
    size_t i = 0;
    for (const StateArray& each : list) {
      if (each.member != member) continue;
      const Array& array = (state.*member)[i++];
      if (array.shape() != each.type.shape)
        throw_error("update: {} is {}, expected {}; give the state that create_state() returned for these paths",
                    each.name, to_string(array.shape()), to_string(each.type.shape));
    }
  };
  check_member("first moments", &OptimizerState::first);
  check_member("second moments", &OptimizerState::second);
  check_member("means over rows", &OptimizerState::second_rows);
  check_member("means over columns", &OptimizerState::second_columns);
}

void check_update(const std::vector<std::string>& paths, const std::vector<Array>& params,
                  const std::vector<Array>& grads) {
  check_parameters("update", params);
  check_count("paths", paths.size(), params.size());
  check_count("gradients", grads.size(), params.size());
  for (size_t i = 0; i < params.size(); ++i)
    if (grads[i].shape() != params[i].shape())
      throw_error("update: the gradient of {} is {}, but the parameter is {}; the shapes must be equal", paths[i],
                  to_string(grads[i].shape()), to_string(params[i].shape()));
}

Array& member_of(detail::ParameterArrays& arrays, std::vector<Array> OptimizerState::*member) {
  if (member == &OptimizerState::first) return arrays.first;
  if (member == &OptimizerState::second) return arrays.second;
  return member == &OptimizerState::second_rows ? arrays.second_rows : arrays.second_columns;
}

std::vector<detail::ParameterArrays> arrays_by_parameter(const std::vector<Array>& params, const OptimizerState& state,
                                                         const std::vector<StateArray>& list) {
  std::vector<detail::ParameterArrays> out;
  for (const Array& p : params) out.push_back({.param = p});
  const std::vector<Array> leaves = tree_leaves(state);  // the first is the step
  for (size_t i = 0; i < list.size(); ++i) member_of(out[list[i].parameter], list[i].member) = leaves[i + 1];
  return out;
}

// The norm of the gradients of all parameters that are not frozen.
Array norm_of(const std::vector<Array>& grads, const std::vector<ParameterRule>& rules) {
  std::vector<Array> used;
  for (size_t i = 0; i < grads.size(); ++i)
    if (!rules[i].frozen) used.push_back(grads[i]);
  return global_norm(used);
}

}  // namespace

namespace detail {

Array global_norm(TreeRef grads) { return lockstep::global_norm(trained_leaves(grads).arrays); }

bool is_adam(Kind kind) { return kind == Kind::adam || kind == Kind::adamw; }
bool has_momentum(Kind kind) { return kind == Kind::momentum || kind == Kind::nesterov; }
bool decouples_decay(Kind kind) {
  return kind == Kind::adamw || kind == Kind::lion || kind == Kind::adafactor || kind == Kind::muon;
}

std::vector<std::string> default_no_decay() { return {"b", "*/b", "bias", "*/bias", "scale", "*/scale"}; }
std::vector<std::string> default_not_muon() {
  return {"*embed*", "out", "out/*", "output", "output/*", "head", "head/*", "lm_head", "lm_head/*"};
}

OptimizerState create_state(const Optimizer& o, TreeRef params) {
  const TrainedLeaves trained = trained_leaves(params);
  return lockstep::create_state(o, trained.paths, trained.arrays);
}

void update(const Optimizer& o, TreeRef params, TreeRef grads, const OptimizerState& state, TreeRef next,
            OptimizerState& next_state) {
  const TrainedLeaves trained = trained_leaves(params);
  Update made = lockstep::update(o, trained.paths, trained.arrays, trained_leaves(grads).arrays, state);
  assign_trained(next, made.params);
  next_state = std::move(made.state);
}

}  // namespace detail

void check(const Optimizer& o) {
  check(o.schedule);
  check_values(o, o.kind);
  for (const ParameterGroup& group : o.groups) {
    check_group(group);
    if (group.kind) check_values(o, *group.kind);
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

OptimizerState create_state(const Optimizer& o, const std::vector<std::string>& paths, const std::vector<Array>& params,
                            SourceLine at) {
  const detail::CallerLine line(at);
  check(o);
  check_parameters("create_state", params);
  if (paths.size() != params.size())
    throw_error("create_state: {} paths, but {} parameters; give one path per parameter", paths.size(), params.size());
  OptimizerState state{.step = zeros({}, i32), .first = {}, .second = {}};
  for (const StateArray& each : state_arrays(o, paths, types_of(params))) {
    const Array zero = zeros_like(params[each.parameter]);
    (state.*each.member).push_back(each.dropped ? sum(zero, static_cast<int64_t>(*each.dropped)) : zero);
  }
  return state;
}

Update update(const Optimizer& o, const std::vector<std::string>& paths, const std::vector<Array>& params,
              const std::vector<Array>& grads, const OptimizerState& state, const Array& norm, SourceLine at) {
  const detail::CallerLine line(at);
  check(o);
  check_update(paths, params, grads);
  const std::vector<Type> types = types_of(params);
  const std::vector<StateArray> list = state_arrays(o, paths, types);
  check_state(state, list);
  const std::vector<ParameterRule> rules = rules_of(o, paths, types);
  ScalarTable table(o, state.step);
  std::vector<detail::StepScalars> scalars(params.size());
  for (size_t i = 0; i < params.size(); ++i)
    if (!rules[i].frozen) scalars[i] = table.of(rules[i]);
  Array clip_factor;
  if (o.clip_norm > 0) clip_factor = o.clip_norm / maximum(norm.defined() ? norm : norm_of(grads, rules), o.clip_norm);
  const Array step = state.step + 1;
  std::vector<detail::ParameterArrays> arrays = arrays_by_parameter(params, state, list);
  for (size_t i = 0; i < params.size(); ++i) {
    if (rules[i].frozen) continue;
    Array g = astype(grads[i], params[i].dtype());
    if (clip_factor.defined()) g = g * astype(clip_factor, g.dtype());
    arrays[i] = update_parameter(o, rules[i], scalars[i], arrays[i], std::move(g));
  }
  Update next;
  for (const detail::ParameterArrays& each : arrays) next.params.push_back(each.param);
  std::vector<Array> leaves;
  for (const StateArray& each : list) leaves.push_back(member_of(arrays[each.parameter], each.member));
  next.state = make_state(list, step, leaves);
  return next;
}

Array global_norm(const std::vector<Array>& leaves) {
  Array squares = zeros({});
  for (const Array& leaf : leaves)
    squares = squares + astype(sum(square(leaf.dtype() == f64 ? leaf : astype(leaf, f32))), f32);
  return sqrt(squares);
}

}  // namespace lockstep
