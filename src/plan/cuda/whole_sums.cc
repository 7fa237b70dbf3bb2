// Which results of products are not written, but added up as they are computed.
//
// Worked example. A training step says how large the gradients are: the squares of a million elements, which a product
// computed and wrote, are read again by a phase of its own and added up, in one more meeting of all blocks. Here each
// block of the product adds up its own, and the sum of all is that of a few hundred floats, which one block does.
#include <algorithm>

#include "plan/cuda/whole_kernel.h"

namespace lockstep::detail {
namespace {

// Who computes all of that, before `reader`, for it alone: the part and the number of the result.
std::optional<std::pair<size_t, size_t>> writer_for(std::span<const KernelPart> parts, size_t reader) {
  const MemoryRange& at = parts[reader].in[0];
  size_t p = reader;
  while (p > 0 && !any_overlap(parts[p - 1].out, at))
    if (any_overlap(parts[--p].in, at)) return {};
  if (p-- == 0) return {};
  const std::vector<MemoryRange>& out = parts[p].out;
  if (std::count_if(out.begin(), out.end(), [&](const MemoryRange& each) { return each.overlaps(at); }) != 1) return {};
  const auto k = static_cast<size_t>(std::find(out.begin(), out.end(), at) - out.begin());
  if (k == out.size() || any_overlap(parts[p].in, at) || parts[p].wants(k)) return {};
  // Up to the part that overwrites it; that may be the reader itself.
  for (size_t q = reader; q < parts.size(); ++q) {
    if (q != reader && any_overlap(parts[q].in, at)) return {};
    if (any_overlap(parts[q].out, at)) break;
  }
  return std::pair(p, k);
}

}  // namespace

std::vector<KernelPart> fuse_sums(std::span<const KernelPart> parts, std::deque<SteppedKernel>& made) {
  std::vector<KernelPart> out(parts.begin(), parts.end());
  for (size_t r = 0; r < out.size(); ++r) {
    if (out[r].in.size() != 1 || !out[r].kernel->adds_up()) continue;
    const auto writer = writer_for(out, r);
    if (!writer) continue;
    const auto [p, k] = *writer;
    // Where the elements would have been.
    const MemoryRange sums{out[r].in[0].space, out[r].in[0].begin, out[r].in[0].begin + kPartialSums * 4};
    if (sums.end > out[r].in[0].end) continue;
    std::optional<SteppedKernel> adding = out[p].kernel->adding(k);
    if (!adding) continue;
    out[p].kernel = &made.emplace_back(*std::move(adding));
    out[r].kernel = &made.emplace_back(out[r].kernel->of_added_up());
    out[p].out[k] = out[r].in[0] = sums;
  }
  return out;
}

}  // namespace lockstep::detail
