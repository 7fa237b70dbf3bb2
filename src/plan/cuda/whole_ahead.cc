#include "plan/cuda/whole_ahead.h"

#include <algorithm>

namespace lockstep::detail {

std::optional<AheadPrefetch> AheadPrefetch::of(std::span<const KernelPart> parts, std::span<const Phase> phases,
                                               const RoundStrides* steps) {
  if (phases.empty()) return {};
  AheadPrefetch out;
  const auto add = [](auto& all, size_t number, const MemoryRange& at) {
    if (at.end > at.begin) all.emplace_back(number, at.end - at.begin);
  };
  std::vector<MemoryRange> written;
  for (const KernelPart& part : parts) {
    written.insert(written.end(), part.out.begin(), part.out.end());
    for (size_t j = 0; j < part.out.size(); ++j) add(out.writes_, part.results[j], part.out[j]);
    // Carries of two places, of which the one is read as the other is written.
    for (size_t i = 0; steps && i < part.in.size(); ++i)
      if (steps->in[part.operands[i]] == 0) written.push_back(part.in[i]);
  }
  out.early_.resize(parts.size());
  for (const Task& task : phases[0]) {
    const KernelPart& part = parts[task[0].part];
    const uint32_t bits = out.early_[task[0].part] = early_operands(parts, task, written);
    const std::vector<CudaStep::Early>& early = part.kernel->steps()[task[0].step].early;
    for (size_t k = 0; k < early.size(); ++k)
      if (bits & 1u << k)
        for (const size_t i : early[k].operands) add(out.reads_, part.operands[i], part.in[i]);
  }
  if (out.reads_.empty()) return {};
  return out;
}

void AheadPrefetch::written(void* const* out, std::vector<Bytes>& all) const {
  all.clear();
  for (const auto& [result, bytes] : writes_) {
    const auto* const at = static_cast<const std::byte*>(out[result]);
    all.push_back({at, at + bytes});
  }
}

bool AheadPrefetch::may_start_early(const void* const* in, std::span<const Bytes> written) const {
  return std::all_of(reads_.begin(), reads_.end(), [&](const auto& read) {
    const auto* const at = static_cast<const std::byte*>(in[read.first]);
    return std::none_of(written.begin(), written.end(),
                        [&](const Bytes& each) { return at < each.end && each.begin < at + read.second; });
  });
}

}  // namespace lockstep::detail
