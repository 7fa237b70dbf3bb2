#include "lockstep/sharding_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/names.h"
#include "lockstep/optimizers.h"

namespace lockstep {
namespace {

std::string without_spaces(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != ' ' && c != '\t') out += c;
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out(1);
  for (const char c : text)
    if (c == separator)
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

std::string quoted_list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += fmt::format("{}\"{}\"", out.empty() ? "" : ", ", name);
  return out;
}

void check_axes(const ShardingRule& rule, const Mesh& mesh) {
  std::set<std::string> seen;
  for (const SpecEntry& entry : rule.spec.entries)
    for (const std::string& axis : entry.axes) {
      if (!mesh.find_axis(axis))
        throw_error("plan: rule \"{}\" uses axis \"{}\", but the axes of the mesh are {};{} use one of them",
                    to_string(rule), axis, quoted_list(mesh.axis_names()), suggestion(axis, mesh.axis_names()));
      if (!seen.insert(axis).second)
        throw_error("plan: rule \"{}\" uses axis \"{}\" twice; an axis can shard only one dimension", to_string(rule),
                    axis);
    }
  if (!rule.spec.unreduced.empty())
    throw_error("plan: rule \"{}\" has a pending sum over \"{}\"; parameters cannot be partial: remove `unreduced`",
                to_string(rule), *rule.spec.unreduced.begin());
}

void check_fits(const ShardingRule& rule, const Mesh& mesh, const std::string& path, const Type& type) {
  const std::vector<SpecEntry>& entries = rule.spec.entries;
  if (rule.spec.trimmed().entries.size() > type.shape.size())
    throw_error(
        "plan: rule \"{}\" has entries for {} dimensions, but {} is {}; shorten the rule, or narrow its pattern to "
        "parameters of that rank",
        to_string(rule), entries.size(), path, to_string(type));
  for (size_t d = 0; d < std::min(entries.size(), type.shape.size()); ++d) {
    int64_t shards = 1;
    for (const std::string& axis : entries[d].axes) shards *= mesh.size(axis);
    if (shards > type.shape[d])
      throw_error(
          "plan: rule \"{}\" splits dimension {} of {}, {}, into {} shards, but it has only {}; shard another "
          "dimension, or exclude this parameter from the rule",
          to_string(rule), d, path, to_string(type), shards, counted(type.shape[d], "element"));
  }
}

// The index of the rule that applies to each parameter, the last that matches; rules.size() if none matches.
std::vector<size_t> applicable_rules(const std::vector<ShardingRule>& rules, const std::vector<std::string>& paths) {
  std::vector<size_t> out(paths.size(), rules.size());
  for (size_t r = 0; r < rules.size(); ++r) {
    bool any = false;
    for (size_t i = 0; i < paths.size(); ++i) {
      if (!matches(rules[r].pattern, paths[i])) continue;
      any = true;
      out[i] = r;
    }
    if (!any)
      throw_error("plan: rule \"{}\" matches no parameter;{} the parameters are {}", to_string(rules[r]),
                  suggestion(rules[r].pattern, paths), quoted_list(paths));
  }
  for (size_t r = 0; r < rules.size(); ++r)
    if (std::find(out.begin(), out.end(), r) == out.end())
      throw_error(
          "plan: rule \"{}\" has no effect: later rules match all of its parameters, and the last match applies; move "
          "it after them, or remove it",
          to_string(rules[r]));
  return out;
}

bool has_axis(const PartitionSpec& spec, const std::string& axis) {
  for (const SpecEntry& entry : spec.entries)
    if (std::find(entry.axes.begin(), entry.axes.end(), axis) != entry.axes.end()) return true;
  return false;
}

// Adds the data axis to the largest unsharded dimension, if one is large enough (see ShardingPlan::zero).
PartitionSpec shard_along_data(PartitionSpec spec, const std::string& axis, int64_t devices, const Shape& shape) {
  if (devices == 1 || has_axis(spec, axis)) return spec;
  spec.entries.resize(shape.size());
  std::optional<size_t> best;
  for (size_t d = 0; d < shape.size(); ++d)
    if (spec.entries[d].axes.empty() && shape[d] >= devices && (!best || shape[d] > shape[*best])) best = d;
  if (best) spec.entries[*best].axes = {axis};
  return spec.trimmed();
}

}  // namespace

ShardingRule parse_sharding_rule(std::string_view given) {
  const std::string text = without_spaces(given);
  // The last =, because a pattern may contain one too.
  const size_t equals = text.rfind('=');
  const auto refuse = [&](std::string_view why) {
    throw_error(
        "shard: \"{}\" {}; write PATTERN=AXES, the axes of each dimension separated by commas, such as "
        "'dense*/w=,model'",
        given, why);
  };
  if (equals == text.npos) refuse("has no =");
  if (equals == 0) refuse("has no pattern");
  ShardingRule rule{text.substr(0, equals), {}};
  for (const std::string& entry : split(text.substr(equals + 1), ',')) {
    SpecEntry axes;
    if (!entry.empty()) axes.axes = split(entry, '+');
    if (std::find(axes.axes.begin(), axes.axes.end(), "") != axes.axes.end()) refuse("has a + without an axis");
    rule.spec.entries.push_back(std::move(axes));
  }
  if (rule.spec.entries.size() == 1 && rule.spec.entries[0].axes.empty()) rule.spec.entries.clear();
  return rule;
}

std::string to_string(const ShardingRule& rule) {
  std::string out = rule.pattern + "=";
  for (size_t d = 0; d < rule.spec.entries.size(); ++d)
    out += fmt::format("{}{}", d > 0 ? "," : "", fmt::join(rule.spec.entries[d].axes, "+"));
  return out;
}

ShardingPlan data_parallel(std::string data_axis) { return {.data_axis = std::move(data_axis)}; }

ShardingPlan fsdp(std::string data_axis) { return {.data_axis = std::move(data_axis), .zero = 3}; }

ShardingPlan tensor_parallel(std::vector<ShardingRule> rules, std::string data_axis) {
  return {.data_axis = std::move(data_axis), .rules = std::move(rules)};
}

std::vector<ParameterSpecs> specs_of(const ShardingPlan& plan, const Mesh& mesh, const std::vector<std::string>& paths,
                                     const std::vector<Type>& types) {
  if (plan.zero < 0 || plan.zero > 3)
    throw_error("plan: zero is {}; give 0 (nothing), 1 (optimizer state), 2 (and gradients) or 3 (and parameters)",
                plan.zero);
  if (!mesh.find_axis(plan.data_axis))
    throw_error("plan: the mesh {} has no axis \"{}\" to shard the batch; add this axis, or set data_axis",
                to_string(mesh), plan.data_axis);
  for (const ShardingRule& rule : plan.rules) check_axes(rule, mesh);
  const std::vector<size_t> applicable = applicable_rules(plan.rules, paths);
  std::vector<ParameterSpecs> out;
  for (size_t i = 0; i < paths.size(); ++i) {
    PartitionSpec own;
    if (applicable[i] < plan.rules.size()) {
      const ShardingRule& rule = plan.rules[applicable[i]];
      check_fits(rule, mesh, paths[i], types[i]);
      own = rule.spec.trimmed();
    }
    const PartitionSpec sharded = shard_along_data(own, plan.data_axis, mesh.size(plan.data_axis), types[i].shape);
    out.push_back({plan.zero >= 3 ? sharded : own, plan.zero >= 2 ? sharded : own, plan.zero >= 1 ? sharded : own});
  }
  return out;
}

}  // namespace lockstep
