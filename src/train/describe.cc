#include "train/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/names.h"
#include "lane/lanes.h"
#include "sharding/lanes.h"

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

// The lanes of this process and the grid they make of a mesh.
struct LaneView {
  explicit LaneView(const Mesh& mesh) : grid(lane_grid(mesh, Lanes::local().count())) {}

  // What the lane that holds most has of an array.
  int64_t bytes(const Type& type, const PartitionSpec& spec) const {
    const LaneCuts cuts = lane_cuts(grid, spec, type.shape.size());
    int64_t most = 0;
    for (int64_t lane = 0; lane < grid.lanes(); ++lane) {
      int64_t elements = 1;
      for (const Range& range : lane_box(grid, cuts, type.shape, lane)) elements *= range.size();
      most = std::max(most, elements * size_of(type.dtype));
    }
    return most;
  }

  LaneGrid grid;
};

// "data parallel over 'data' (4 devices), parameters cut by 2 rules, optimizer state cut along 'data' (zero 1)".
std::string plan_text(const EngineOptions& options) {
  const ShardingPlan& plan = options.plan;
  constexpr const char* kZero[] = {"", "optimizer state", "optimizer state and gradients",
                                   "optimizer state, gradients and parameters"};
  std::string out =
      fmt::format("data parallel over '{}' ({})", plan.data_axis, counted(options.mesh.size(plan.data_axis), "device"));
  if (!plan.rules.empty())
    out += fmt::format(", parameters cut by {}", counted(static_cast<int64_t>(plan.rules.size()), "rule"));
  if (plan.zero > 0) out += fmt::format(", {} cut along '{}' (zero {})", kZero[plan.zero], plan.data_axis, plan.zero);
  if (options.accumulate > 1) out += fmt::format(", batches in {} pieces", options.accumulate);
  return out;
}

int64_t states_of(Optimizer::Kind kind) {
  if (kind == Optimizer::Kind::sgd) return 0;
  return kind == Optimizer::Kind::adam || kind == Optimizer::Kind::adamw ? 2 : 1;
}

}  // namespace

std::string describe(const Model& model, const EngineOptions& options, const std::vector<ParameterSpecs>& specs) {
  const auto kind = options.optimizer.kind;
  const int64_t copies = states_of(kind);
  const LaneView view(options.mesh);
  size_t widest = 9, widest_spec = 8;
  for (const std::string& path : model.paths) widest = std::max(widest, path.size());
  for (const ParameterSpecs& each : specs) widest_spec = std::max(widest_spec, to_string(each.param).size());
  int64_t parameters = 0, bytes = 0, grad_bytes = 0, state_bytes = 0;
  const auto row = [&](const auto& path, const auto& type, const auto& elements, const auto& memory, const auto& spec,
                       const auto& state) {
    std::string line = fmt::format("  {:<{}}  {:<18}  {:>12}  {:>10}  {:<{}}  {}", path, widest, type, elements, memory,
                                   spec, widest_spec, state);
    return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  std::string table = row("parameter", "type", "elements", "memory", "sharding", copies > 0 ? "optimizer state" : "");
  for (size_t i = 0; i < model.paths.size(); ++i) {
    const Type& type = model.types[i];
    parameters += count(type.shape);
    bytes += view.bytes(type, specs[i].param);
    grad_bytes += view.bytes(type, specs[i].grad);
    state_bytes += copies * view.bytes(type, specs[i].state);
    table += row(model.paths[i], to_string(type), with_commas(count(type.shape)), bytes_text(type.bytes()),
                 to_string(specs[i].param), copies > 0 ? to_string(specs[i].state) : "");
  }
  std::string out;
  out += fmt::format("model      {}, {} parameters\n", model.name, with_commas(parameters));
  out += fmt::format("mesh       {}\n", to_string(options.mesh));
  out += fmt::format("plan       {}\n", plan_text(options));
  out += fmt::format("optimizer  {}, {} schedule, peak learning rate {}\n", to_string(kind),
                     to_string(options.optimizer.schedule.kind), options.optimizer.schedule.peak);
  out += fmt::format("precision  {} (parameters, reductions and losses in float32)\n", to_string(options.precision));
  out += fmt::format("memory     parameters {}, optimizer state {}, gradients {}{}\n", bytes_text(bytes),
                     bytes_text(state_bytes), bytes_text(grad_bytes),
                     view.grid.lanes() > 1 ? fmt::format(" on each of {} lanes", view.grid.lanes()) : "");
  return out + table;
}

}  // namespace lockstep::detail
