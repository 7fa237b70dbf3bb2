#include "lockstep/plan.h"

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

// The pieces of a text between separators; one more than there are separators.
std::vector<std::string> pieces_of(std::string_view text, char separator) {
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
        throw_error("plan: rule \"{}\" cuts by the axis \"{}\", and the mesh has {};{} choose one of them",
                    to_string(rule), axis, quoted_list(mesh.axis_names()), suggestion(axis, mesh.axis_names()));
      if (!seen.insert(axis).second)
        throw_error("plan: rule \"{}\" has the axis \"{}\" twice; an axis can cut one dimension only", to_string(rule),
                    axis);
    }
  if (!rule.spec.unreduced.empty())
    throw_error("plan: rule \"{}\" leaves a sum owed over \"{}\"; parameters are whole values: drop `unreduced`",
                to_string(rule), *rule.spec.unreduced.begin());
}

void check_fits(const ShardingRule& rule, const Mesh& mesh, const std::string& path, const Type& type) {
  const std::vector<SpecEntry>& entries = rule.spec.entries;
  if (rule.spec.trimmed().entries.size() > type.shape.size())
    throw_error(
        "plan: rule \"{}\" has entries for {} dimensions and {} is {}; shorten it, or narrow its pattern to "
        "parameters of that rank",
        to_string(rule), entries.size(), path, to_string(type));
  for (size_t d = 0; d < std::min(entries.size(), type.shape.size()); ++d) {
    int64_t pieces = 1;
    for (const std::string& axis : entries[d].axes) pieces *= mesh.size(axis);
    if (pieces > type.shape[d])
      throw_error(
          "plan: rule \"{}\" cuts dimension {} of {}, {}, into {} pieces, and it has {}; cut another dimension, or "
          "leave this parameter out of the rule",
          to_string(rule), d, path, to_string(type), pieces, counted(type.shape[d], "element"));
  }
}

// The rule that counts for each parameter, as an index; the number of rules where none matches.
std::vector<size_t> rules_that_count(const std::vector<ShardingRule>& rules, const std::vector<std::string>& paths) {
  std::vector<size_t> out(paths.size(), rules.size());
  for (size_t r = 0; r < rules.size(); ++r) {
    bool any = false;
    for (size_t i = 0; i < paths.size(); ++i) {
      if (!matches(rules[r].pattern, paths[i])) continue;
      any = true;
      out[i] = r;
    }
    if (!any)
      throw_error("plan: rule \"{}\" matches no parameter;{} there are {}", to_string(rules[r]),
                  suggestion(rules[r].pattern, paths), quoted_list(paths));
  }
  for (size_t r = 0; r < rules.size(); ++r)
    if (std::find(out.begin(), out.end(), r) == out.end())
      throw_error(
          "plan: rule \"{}\" has no effect: rules after it match all of its parameters; put it behind them, for the "
          "last rule counts, or remove it",
          to_string(rules[r]));
  return out;
}

bool has_axis(const PartitionSpec& spec, const std::string& axis) {
  for (const SpecEntry& entry : spec.entries)
    if (std::find(entry.axes.begin(), entry.axes.end(), axis) != entry.axes.end()) return true;
  return false;
}

// The spec with the data axis at the dimension that gains most, if there is one.
PartitionSpec cut_by_data(PartitionSpec spec, const std::string& axis, int64_t devices, const Shape& shape) {
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
  // The last one: patterns may hold what they like.
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
  for (const std::string& entry : pieces_of(text.substr(equals + 1), ',')) {
    SpecEntry axes;
    if (!entry.empty()) axes.axes = pieces_of(entry, '+');
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
    throw_error("plan: the mesh {} has no axis \"{}\" to cut the batch; name one so, or set data_axis", to_string(mesh),
                plan.data_axis);
  for (const ShardingRule& rule : plan.rules) check_axes(rule, mesh);
  const std::vector<size_t> counts = rules_that_count(plan.rules, paths);
  std::vector<ParameterSpecs> out;
  for (size_t i = 0; i < paths.size(); ++i) {
    PartitionSpec own;
    if (counts[i] < plan.rules.size()) {
      const ShardingRule& rule = plan.rules[counts[i]];
      check_fits(rule, mesh, paths[i], types[i]);
      own = rule.spec.trimmed();
    }
    const PartitionSpec cut = cut_by_data(own, plan.data_axis, mesh.size(plan.data_axis), types[i].shape);
    out.push_back({plan.zero >= 3 ? cut : own, plan.zero >= 2 ? cut : own, plan.zero >= 1 ? cut : own});
  }
  return out;
}

}  // namespace lockstep
