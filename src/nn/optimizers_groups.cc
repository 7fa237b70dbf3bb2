// Which rule updates which parameter, and which state arrays it needs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/names.h"
#include "nn/optimizers_rules.h"

namespace lockstep {
namespace {

bool matches_any(const std::vector<std::string>& patterns, const std::string& path) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, path); });
}

// The index of the group that applies to each parameter, the last that matches; groups.size() if none matches.
std::vector<size_t> applicable_groups(const std::vector<ParameterGroup>& groups,
                                      const std::vector<std::string>& paths) {
  std::vector<size_t> out(paths.size(), groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    bool any = false;
    for (size_t i = 0; i < paths.size(); ++i) {
      if (!matches(groups[g].pattern, paths[i])) continue;
      any = true;
      out[i] = g;
    }
    if (!any)
      throw_error("group: \"{}\" matches no parameter;{} the parameters are {}", groups[g].pattern,
                  suggestion(groups[g].pattern, paths), fmt::join(paths, ", "));
  }
  for (size_t g = 0; g < groups.size(); ++g)
    if (std::find(out.begin(), out.end(), g) == out.end())
      throw_error(
          "group: \"{}\" has no effect: later groups match all of its parameters, and the last match applies; move it "
          "after them, or remove it",
          groups[g].pattern);
  return out;
}

ParameterRule rule_of(const Optimizer& o, const ParameterGroup* group, const std::string& path, const Type& type) {
  ParameterRule rule{.kind = o.kind, .rate = 1, .weight_decay = o.weight_decay, .frozen = false};
  const bool matrix = type.shape.size() >= 2;
  if (o.kind == Optimizer::Kind::muon && (!matrix || matches_any(o.not_muon, path))) rule.kind = Optimizer::Kind::adamw;
  if (matches_any(o.no_decay, path)) rule.weight_decay = 0;
  if (group) {
    rule.rate = group->rate;
    rule.weight_decay = group->weight_decay.value_or(rule.weight_decay);
    rule.kind = group->kind.value_or(rule.kind);
    rule.frozen = group->frozen;
    if (group->kind == Optimizer::Kind::muon && !matrix && !rule.frozen)
      throw_error("group: \"{}\" chooses muon for {}, which is {}; muon updates matrices: narrow the pattern",
                  group->pattern, path, to_string(type));
  }
  if (o.kind == Optimizer::Kind::muon && rule.kind == Optimizer::Kind::adamw) rule.rate *= o.adam_rate;
  return rule;
}

Shape without_dimension(Shape shape, size_t dimension) {
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dimension));
  return shape;
}

constexpr std::pair<std::vector<Array> OptimizerState::*, std::string_view> kStateMembers[] = {
    {&OptimizerState::first, "first/"},
    {&OptimizerState::second, "second/"},
    {&OptimizerState::second_rows, "second_rows/"},
    {&OptimizerState::second_columns, "second_columns/"}};

// The dimension that a state array of a parameter lacks: nullopt if it has all of them.
struct StateForm {
  bool used = false;
  std::optional<size_t> dropped = {};
};
StateForm form_of(std::vector<Array> OptimizerState::*member, const ParameterRule& rule, const Shape& shape) {
  if (rule.frozen || rule.kind == Optimizer::Kind::sgd) return {};
  if (rule.kind != Optimizer::Kind::adafactor)
    return {member == &OptimizerState::first || (member == &OptimizerState::second && detail::is_adam(rule.kind))};
  if (!detail::is_factored(shape)) return {member == &OptimizerState::second};
  if (member == &OptimizerState::second_rows) return {true, shape.size() - 1};
  if (member == &OptimizerState::second_columns) return {true, shape.size() - 2};
  return {};
}

}  // namespace

std::vector<ParameterRule> rules_of(const Optimizer& o, const std::vector<std::string>& paths,
                                    const std::vector<Type>& types) {
  LOCKSTEP_CHECK(paths.size() == types.size(), "{} paths, {} types", paths.size(), types.size());
  const std::vector<size_t> groups = applicable_groups(o.groups, paths);
  std::vector<ParameterRule> out;
  for (size_t i = 0; i < paths.size(); ++i)
    out.push_back(rule_of(o, groups[i] < o.groups.size() ? &o.groups[groups[i]] : nullptr, paths[i], types[i]));
  if (!out.empty() && std::all_of(out.begin(), out.end(), [](const ParameterRule& rule) { return rule.frozen; }))
    throw_error("group: all {} parameters are frozen, so there is nothing to train; narrow the patterns", out.size());
  return out;
}

std::vector<StateArray> state_arrays(const Optimizer& o, const std::vector<std::string>& paths,
                                     const std::vector<Type>& types) {
  const std::vector<ParameterRule> rules = rules_of(o, paths, types);
  std::vector<StateArray> out;
  for (const auto& [member, prefix] : kStateMembers)
    for (size_t i = 0; i < rules.size(); ++i) {
      const StateForm form = form_of(member, rules[i], types[i].shape);
      if (!form.used) continue;
      Type type = types[i];
      if (form.dropped) type.shape = without_dimension(type.shape, *form.dropped);
      out.push_back({member, std::string(prefix) + paths[i], i, std::move(type), form.dropped});
    }
  return out;
}

PartitionSpec state_spec(const StateArray& array, const PartitionSpec& spec) {
  PartitionSpec out = spec;
  if (array.dropped && *array.dropped < out.entries.size())
    out.entries.erase(out.entries.begin() + static_cast<std::ptrdiff_t>(*array.dropped));
  return out.trimmed();
}

OptimizerState make_state(const std::vector<StateArray>& list, const Array& step, const std::vector<Array>& arrays) {
  LOCKSTEP_CHECK(list.size() == arrays.size(), "{} state arrays, expected {}", arrays.size(), list.size());
  OptimizerState out{.step = step, .first = {}, .second = {}};
  for (size_t i = 0; i < list.size(); ++i) (out.*list[i].member).push_back(arrays[i]);
  return out;
}

}  // namespace lockstep
