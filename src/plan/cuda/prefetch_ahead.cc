#include "plan/cuda/prefetch_ahead.h"

#include <algorithm>

#include "plan/cuda/rewrites/phases.h"

namespace lockstep::detail {

std::optional<AheadPrefetch> AheadPrefetch::of(const KernelSchedule& kernel, std::span<const TaskValue> values,
                                               const RoundStrides* rounds) {
  if (kernel.phases.empty()) return {};
  AheadPrefetch out;
  const auto add = [&](std::vector<std::pair<size_t, int64_t>>& all, const TaskValue& value) {
    const auto found =
        std::find_if(values.begin(), values.end(), [&](const auto& each) { return each.id == value.id; });
    if (value.bytes() > 0 && found != values.end()) all.emplace_back(found - values.begin(), value.bytes());
  };
  std::vector<TaskValue> written;
  for (const GpuTask& task : kernel.tasks) {
    for (const TaskValue& value : results(task)) {
      written.push_back(value);
      add(out.writes_, value);
    }
    // A value that alternates between two buffers is read from the one that the previous round wrote.
    for (const TaskValue& value : operands(task))
      if (rounds && rounds->of(value) == 0) written.push_back(value);
  }
  out.prefetched_.resize(kernel.tasks.size());
  for (const size_t index : kernel.phases[0]) {
    const GpuTask& task = kernel.tasks[index];
    const uint32_t bits = out.prefetched_[index] = prefetchable_operands(task, written);
    if (bits == 0) continue;
    const std::vector<TaskValue> in = operands(task);
    for (size_t k = 0; k < task.step->prefetches.size(); ++k)
      if (bits & 1u << k)
        for (const size_t i : task.step->prefetches[k].operands) add(out.reads_, in[i]);
  }
  if (out.reads_.empty()) return {};
  return out;
}

void AheadPrefetch::written(void* const* values, std::vector<Bytes>& all) const {
  all.clear();
  for (const auto& [value, bytes] : writes_) {
    const auto* const at = static_cast<const std::byte*>(values[value]);
    all.push_back({at, at + bytes});
  }
}

bool AheadPrefetch::may_start_early(void* const* values, std::span<const Bytes> written) const {
  return std::all_of(reads_.begin(), reads_.end(), [&](const auto& read) {
    const auto* const at = static_cast<const std::byte*>(values[read.first]);
    return std::none_of(written.begin(), written.end(),
                        [&](const Bytes& each) { return at < each.end && each.begin < at + read.second; });
  });
}

}  // namespace lockstep::detail
