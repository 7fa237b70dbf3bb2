#include "passes/traffic.h"

#include <fmt/format.h>

#include "program/op.h"

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

// The collective that starts here, or null; a done equation only waits.
const LaneCollective* started_by(const Eqn& eqn) {
  const LaneCollective* collective = eqn.op->collective;
  return collective && collective->done != eqn.op ? collective : nullptr;
}

}  // namespace

Traffic traffic(const Program& lane, const Eqn& eqn, const LaneGrid& grid) {
  const LaneCollective* collective = started_by(eqn);
  if (!collective) return {};
  const int64_t n = lanes_along(grid, split_axes(eqn.attrs.get<std::string>("axes")));
  // Once around the ring; twice for an all-reduce: a reduce-scatter and an all-gather. A gather moves its result.
  const int64_t rounds = collective->kind == LaneCollective::Kind::all_reduce ? 2 : 1;
  const int64_t bytes = bytes_of(lane, collective->kind == LaneCollective::Kind::all_gather ? eqn.out : eqn.in);
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
    const LaneCollective* collective = started_by(eqn);
    if (!collective) continue;
    const Traffic one = traffic(lane, eqn, grid);
    const bool overlapped = collective->start == eqn.op;
    out += fmt::format("{} {}: {}, {}, {}{}\n", collective->whole->name, eqn.attrs.get<std::string>("axes"),
                       counted(static_cast<int64_t>(eqn.in.size()), "array"), size_text(one.bytes),
                       counted(one.steps, "step"), overlapped ? ", overlapped" : "");
  }
  return out;
}

}  // namespace lockstep
