#include "passes/traffic.h"

#include <fmt/format.h>

#include "ops/ops.h"

namespace lockstep {
namespace {

int64_t bytes_of(const Program& p, const std::vector<ValueId>& ids) {
  int64_t bytes = 0;
  for (ValueId id : ids) bytes += p.types[id].bytes();
  return bytes;
}

std::string size_text(int64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  const auto size = static_cast<double>(bytes);
  return bytes < 100'000 ? fmt::format("{:.1f} KB", size / 1e3) : fmt::format("{:.1f} MB", size / 1e6);
}

std::string counted(int64_t n, const char* noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

constexpr std::string_view kStart = "_start", kDone = "_done";

// Whether a collective starts here; a done equation only waits.
bool starts_collective(const Eqn& eqn) { return eqn.op->is_collective && !eqn.op->name.ends_with(kDone); }

// The name of the collective, without the suffix of a start equation.
std::string_view name_of(const Op& op) {
  return op.name.substr(0, op.name.size() - (op.name.ends_with(kStart) ? kStart.size() : 0));
}

}  // namespace

Traffic traffic(const Program& lane, const Eqn& eqn, const LaneGrid& grid) {
  if (!starts_collective(eqn)) return {};
  const int64_t n = lanes_along(grid, split_axes(eqn.attrs.get<std::string>("axes")));
  // Once around the ring; twice for an all-reduce: a reduce-scatter and an all-gather. A gather moves its result.
  const int64_t rounds = name_of(*eqn.op) == lane_all_reduce_op.name ? 2 : 1;
  const int64_t bytes = bytes_of(lane, name_of(*eqn.op) == lane_all_gather_op.name ? eqn.out : eqn.in);
  return {rounds * (n - 1) * bytes / n, rounds * (n - 1)};
}

Traffic traffic(const Program& lane, const LaneGrid& grid) {
  Traffic sum;
  for (const Eqn& eqn : lane.eqns) {
    const Traffic one = traffic(lane, eqn, grid);
    sum.bytes += one.bytes;
    sum.steps += one.steps;
  }
  return sum;
}

std::string traffic_text(const Program& lane, const LaneGrid& grid) {
  std::string out;
  for (const Eqn& eqn : lane.eqns) {
    if (!starts_collective(eqn)) continue;
    const Traffic one = traffic(lane, eqn, grid);
    const bool overlapped = eqn.op->name.ends_with(kStart);
    out += fmt::format("{} {}: {}, {}, {}{}\n", name_of(*eqn.op), eqn.attrs.get<std::string>("axes"),
                       counted(static_cast<int64_t>(eqn.in.size()), "array"), size_text(one.bytes),
                       counted(one.steps, "step"), overlapped ? ", overlapped" : "");
  }
  return out;
}

}  // namespace lockstep
