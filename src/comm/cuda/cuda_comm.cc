#include "comm/cuda/cuda_comm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/print_stderr.h"
#include "base/runtime_settings.h"

namespace lockstep {
namespace {

GpuFacts facts_of(const CudaStream& lane) {
  GpuFacts facts{lane.info().uuid, 0};
  if (detail::runtime_option(&RuntimeOptions::nccl)) facts.nccl = detail::nccl_version();
  return facts;
}

// The facts of all ranks, in rank order.
std::vector<GpuFacts> gather_facts(Comm& host, const GpuFacts& own) {
  static_assert(sizeof(GpuFacts) == 20);
  std::vector<GpuFacts> all(static_cast<size_t>(host.size()));
  const std::vector<int64_t> counts(all.size(), sizeof(GpuFacts));
  host.all_gather(&own, all.data(), counts, DType::u8);
  return all;
}

std::unique_ptr<Comm> try_nccl(Comm& host, CudaStream& lane) {
  const std::vector<GpuFacts> all = gather_facts(host, facts_of(lane));
  if (!why_no_nccl(all).empty()) return nullptr;
  std::string why_not;
  std::unique_ptr<Comm> made = nccl_comm(host, lane, why_not);
  if (!made && host.rank() == 0)
    print_stderr(
        "lockstep: \"{}\" exchanges data through host memory, which is slow, because NCCL failed to start: {}\n",
        host.name(), why_not);
  return made;
}

}  // namespace

std::string why_no_nccl(std::span<const GpuFacts> lanes) {
  if (lanes.size() == 1) return "there is only one lane";
  std::set<std::array<uint8_t, 16>> seen;
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (lanes[i].nccl == 0) return fmt::format("lane {} of {} has no NCCL", i, lanes.size());
    if (!seen.insert(lanes[i].uuid).second) {
      const auto first =
          std::find_if(lanes.begin(), lanes.end(), [&](const GpuFacts& each) { return each.uuid == lanes[i].uuid; });
      return fmt::format("lanes {} and {} of {} share a GPU", first - lanes.begin(), i, lanes.size());
    }
  }
  // Different versions of NCCL may be incompatible.
  for (size_t i = 1; i < lanes.size(); ++i)
    if (lanes[i].nccl != lanes[0].nccl)
      return fmt::format("lane 0 of {} has NCCL {} and lane {} has {}", lanes.size(), lanes[0].nccl, i, lanes[i].nccl);
  return "";
}

std::unique_ptr<Comm> cuda_comm(Comm& host, CudaStream& lane) {
  std::unique_ptr<Comm> made = try_nccl(host, lane);
  return made ? std::move(made) : staged_comm(host, lane);
}

}  // namespace lockstep
