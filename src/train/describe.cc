#include "train/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "array/lane_pieces.h"
#include "base/names.h"
#include "sharding/lanes.h"
#include "train/state.h"

namespace lockstep::detail {

std::string with_commas(int64_t number) {
  const std::string digits = std::to_string(number);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits[unit]);
}

namespace {

// Bytes of an array that a lane holds.
int64_t bytes_on(int64_t lane, const LaneGrid& grid, const Type& type, const PartitionSpec& spec) {
  int64_t elements = 1;
  for (const Range& range : lane_box(grid, to_lane_spec(grid, spec, type.shape.size()), type.shape, lane))
    elements *= range.size();
  return elements * size_of(type.dtype);
}

// "data parallel over 'data' (4 devices), parameters sharded by 2 rules, optimizer state sharded over 'data' (zero 1)".
std::string plan_text(const EngineOptions& options) {
  const ShardingPlan& plan = options.plan;
  constexpr const char* kZero[] = {"", "optimizer state", "optimizer state and gradients",
                                   "optimizer state, gradients and parameters"};
  std::string out =
      fmt::format("data parallel over '{}' ({})", plan.data_axis, counted(options.mesh.size(plan.data_axis), "device"));
  if (!plan.rules.empty())
    out += fmt::format(", parameters sharded by {}", counted(static_cast<int64_t>(plan.rules.size()), "rule"));
  if (plan.zero > 0)
    out += fmt::format(", {} sharded over '{}' (zero {})", kZero[plan.zero], plan.data_axis, plan.zero);
  if (options.accumulate > 1) out += fmt::format(", {} micro-batches per step", options.accumulate);
  return out;
}

// A table with one row per lane; consecutive lanes with the same values share a row.
std::string memory_table(const std::vector<LaneMemory>& memory) {
  const bool work = std::any_of(memory.begin(), memory.end(), [](const LaneMemory& each) { return each.work > 0; });
  const auto row = [&](const std::string& lanes, const auto& text, const LaneMemory& each) {
    std::string out = fmt::format("{:<12}  {:>10}  {:>15}  {:>10}", lanes, text("parameters", each.parameters),
                                  text("optimizer state", each.optimizer), text("gradients", each.gradients));
    if (work) out += fmt::format("  {:>10}", text("workspace", each.work));
    return out + fmt::format("  {:>10}\n", text("total", each.total()));
  };
  std::string out = row("memory", [](const char* title, int64_t) { return std::string(title); }, {});
  for (size_t first = 0, last = 0; first < memory.size(); first = last) {
    while (last < memory.size() && memory[last] == memory[first]) ++last;
    const std::string lanes =
        last - first == 1 ? fmt::format("  lane {}", first) : fmt::format("  lane {}-{}", first, last - 1);
    out += row(
        lanes, [](const char*, int64_t bytes) { return bytes_text(bytes); }, memory[first]);
  }
  return out;
}

}  // namespace

std::vector<LaneMemory> persistent_memory(const Task& task, const EngineOptions& options,
                                          const std::vector<ParameterSpecs>& specs) {
  const MeshLanes lanes = lanes_of(options.mesh);
  const std::vector<ParameterSpecs> trained = trained_of(task, specs);
  const std::vector<StateArray> arrays =
      state_arrays(options.optimizer, trained_of(task, task.paths), trained_of(task, task.types));
  std::vector<LaneMemory> out(lanes.grid.axes.empty() ? 1 : static_cast<size_t>(lanes.local_count));
  int64_t lane = lanes.first_local;
  for (LaneMemory& own : out) {
    for (size_t i = 0; i < specs.size(); ++i) {
      own.parameters += bytes_on(lane, lanes.grid, task.types[i], specs[i].param);
      if (!task.trained[i]) continue;
      if (options.ema_decay > 0) own.optimizer += bytes_on(lane, lanes.grid, task.types[i], specs[i].param);
      if (options.accumulate > 1) own.gradients += bytes_on(lane, lanes.grid, task.types[i], specs[i].grad);
    }
    for (const StateArray& each : arrays)
      own.optimizer += bytes_on(lane, lanes.grid, each.type, state_spec(each, trained[each.parameter].state));
    ++lane;
  }
  return out;
}

std::string describe(const Task& task, const EngineOptions& options, const std::vector<ParameterSpecs>& specs,
                     const std::vector<LaneMemory>& memory) {
  const auto kind = options.optimizer.kind;
  const bool has_state =
      !state_arrays(options.optimizer, trained_of(task, task.paths), trained_of(task, task.types)).empty();
  size_t widest = 9, widest_spec = 8;
  for (const std::string& path : task.paths) widest = std::max(widest, path.size());
  for (const ParameterSpecs& each : specs) widest_spec = std::max(widest_spec, to_string(each.param).size());
  constexpr size_t kMaxRows = 24;  // the table of a large model would hide everything before it
  int64_t parameters = 0;
  const auto row = [&](const auto& path, const auto& type, const auto& elements, const auto& bytes, const auto& spec,
                       const auto& state) {
    std::string line = fmt::format("  {:<{}}  {:<18}  {:>12}  {:>10}  {:<{}}  {}", path, widest, type, elements, bytes,
                                   spec, widest_spec, state);
    return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  std::string table = row("parameter", "type", "elements", "memory", "sharding", has_state ? "optimizer state" : "");
  for (size_t i = 0; i < task.paths.size(); ++i) {
    const Type& type = task.types[i];
    parameters += count(type.shape);
    if (i >= kMaxRows && task.paths.size() > kMaxRows + 1) continue;
    table += row(task.paths[i], to_string(type), with_commas(count(type.shape)), bytes_text(type.bytes()),
                 to_string(specs[i].param),
                 !task.trained[i] ? "not trained"
                 : has_state      ? to_string(specs[i].state)
                                  : "");
  }
  if (task.paths.size() > kMaxRows + 1)
    table +=
        fmt::format("  ... and {} more\n", counted(static_cast<int64_t>(task.paths.size() - kMaxRows), "parameter"));
  std::string out;
  out += fmt::format("model      {}, {} parameters\n", task.name, with_commas(parameters));
  out += fmt::format("mesh       {}\n", to_string(options.mesh));
  out += fmt::format("plan       {}\n", plan_text(options));
  out += fmt::format("optimizer  {}, {} schedule, peak learning rate {}\n", to_string(kind),
                     to_string(options.optimizer.schedule.kind), options.optimizer.schedule.peak);
  out += fmt::format("precision  {} (parameters, reductions and losses in float32)\n", to_string(options.precision));
  out += memory_table(memory);
  return out + table;
}

}  // namespace lockstep::detail
