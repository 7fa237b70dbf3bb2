#include "train/lane_metrics.h"

#include <fmt/format.h>

#include <algorithm>

#include "array/lane_pieces.h"
#include "base/runtime_settings.h"
#include "train/peak.h"
#include "train/process_memory.h"

namespace lockstep::detail {

std::vector<Lane*> used_lanes(const Mesh& mesh) {
  const MeshLanes where = lanes_of(mesh);
  Lanes& lanes = Lanes::current();
  if (where.grid.axes.empty() || where.local_count == 1) return {&lanes.main()};
  std::vector<Lane*> out;
  for (int64_t i = 0; i < where.local_count; ++i) out.push_back(&lanes.lane(i));
  return out;
}

double peak_of(const std::vector<Lane*>& lanes, const EngineOptions& options) {
  const LaneInfo& info = lanes[0]->info();
  double each = options.peak;
  if (each == 0 && info.platform == "cuda")
    each = peak_of_gpu(info.name, options.precision.float8 ? DType::f8_e4m3 : options.precision.compute,
                       runtime_option(&RuntimeOptions::gpu_math) != "full");
  // CPU lanes share one CPU.
  return info.space == MemorySpace::host ? each : each * static_cast<double>(lanes.size());
}

void append_memory(Scalars& out, const std::vector<Lane*>& lanes) {
  if (lanes[0]->info().space == MemorySpace::host) {
    out.emplace_back("memory", static_cast<double>(largest_resident_set()));
    return;
  }
  double most = 0;
  std::vector<double> each;
  for (const Lane* lane : lanes) {
    each.push_back(static_cast<double>(lane->memory_in_use()));
    most = std::max(most, each.back());
  }
  out.emplace_back("memory", most);
  for (size_t i = 0; i < each.size() && each.size() > 1; ++i)
    out.emplace_back(fmt::format("memory/lane_{}", i), each[i]);
}

}  // namespace lockstep::detail
