// Which instructions of a plan become one kernel.
#include <fmt/format.h>

#include <algorithm>

#include "base/runtime_settings.h"
#include "lane/cuda/code.h"
#include "plan/cuda/whole_ahead.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kRounds = 8;             // that a processor's block takes part in a step, at most
constexpr double kMostOperations = 1.5e9;  // of one product

// Has a block that is to multiply something else to do in the same phase?
bool is_full(std::span<const KernelPart> parts, std::span<const Phase> phases, int processors) {
  return std::any_of(phases.begin(), phases.end(), [&](const Phase& phase) {
    int64_t blocks = 0;
    bool multiplies = false;
    for (const Task& task : phase) {
      const CudaStep& step = parts[task[0].part].kernel->steps()[task[0].step];
      blocks += is_chain(parts, task) ? 1 : step.blocks;
      multiplies |= step.operations > 0;
    }
    return multiplies && blocks > processors;
  });
}

}  // namespace

bool may_join(const SteppedKernel& kernel, int processors) {
  return std::all_of(kernel.steps().begin(), kernel.steps().end(), [&](const CudaStep& step) {
    return step.blocks <= processors * kRounds && step.operations <= kMostOperations;
  });
}

std::vector<KernelPart> optimize_parts(std::span<const KernelPart> parts, int processors,
                                       std::deque<SteppedKernel>& made) {
  const auto shared_out = [&](std::span<const KernelPart> some) {
    std::vector<KernelPart> all = merge_ranges(some, processors, made);
    assign_blocks(all, balanced_phases(all, processors), processors, made);
    return all;
  };
  const std::vector<KernelPart> computed = inline_sources(fuse_sums(parts, made), made);
  const std::vector<KernelPart> all = shared_out(computed);
  // Fuse column sums into products only if no block is idle: a product that also sums columns takes longer.
  if (is_full(all, balanced_phases(all, processors), processors))
    if (const std::vector<KernelPart> columns = fuse_column_sums(computed, made); columns.size() < computed.size())
      if (std::vector<KernelPart> added = shared_out(columns); fits_in_one_kernel(added)) return added;
  if (fits_in_one_kernel(all)) return all;
  // What is computed by its readers, and sums that are shared, may take pointers more.
  std::vector<KernelPart> plain = shared_out(parts);
  return fits_in_one_kernel(plain) ? plain : std::vector(parts.begin(), parts.end());
}

std::vector<JoinedInstructions> join_instructions(CudaStream& lane, const std::vector<GpuInstruction>& instructions) {
  std::vector<JoinedInstructions> out;
  if (!detail::runtime_option(&RuntimeOptions::persistent_kernel)) return out;
  std::vector<KernelPart> parts;
  // The parts are the instructions up to `end`.
  const auto mark_needed = [&](size_t end) {
    for (size_t p = 0; p < parts.size(); ++p) {
      const GpuInstruction& own = instructions[end - parts.size() + p];
      parts[p].wanted = own.escapes;
      for (size_t later = end; later < instructions.size(); ++later)
        for (const MemoryRange& in : instructions[later].in)
          for (size_t k = 0; k < own.out.size(); ++k)
            if (in.overlaps(own.out[k])) parts[p].wanted[k] = true;
      parts[p].needed = std::find(parts[p].wanted.begin(), parts[p].wanted.end(), true) != parts[p].wanted.end();
    }
  };
  const auto finish = [&](size_t end) {
    if (parts.size() > 1) {
      std::deque<SteppedKernel> made;
      const int processors = lane.info().processors;
      mark_needed(end);
      const auto all = optimize_parts(parts, processors, made);
      const std::vector<Phase> phases = balanced_phases(all, processors);
      const bool brings_ahead = CudaFunction::uses_dependent_launch(lane.info()) && AheadPrefetch::of(all, phases);
      const bool adds_columns = std::any_of(
          all.begin(), all.end(), [](const KernelPart& part) { return part.kernel->steps()[0].name == kWithColumns; });
      out.push_back({end - parts.size(), parts.size(), PersistentKernel(lane, all, phases),
                     fmt::format("one kernel of {} instructions in {} phases{}{}", parts.size(), phases.size(),
                                 brings_ahead ? ", some of the first brought ahead" : "",
                                 adds_columns ? ", a product of which adds up columns" : "")});
    }
    parts.clear();
  };
  // Operands are numbered one instruction after the other, and so are results.
  size_t operands = 0, results = 0;
  const auto add = [&](const SteppedKernel* kernel, const GpuInstruction& each) {
    if (parts.empty()) operands = results = 0;
    KernelPart part{kernel, each.in, each.out, {}, {}};
    for (size_t i = 0; i < each.in.size(); ++i) part.operands.push_back(operands++);
    for (size_t i = 0; i < each.out.size(); ++i) part.results.push_back(results++);
    parts.push_back(std::move(part));
  };
  for (size_t i = 0; i < instructions.size(); ++i) {
    const GpuInstruction& each = instructions[i];
    const auto* kernel = each.kernel->target<SteppedKernel>();
    if (!kernel || !may_join(*kernel, lane.info().processors)) {
      finish(i);
      continue;
    }
    add(kernel, each);
    if (fits_in_one_kernel(parts)) continue;
    parts.pop_back();
    finish(i);
    add(kernel, each);
  }
  finish(instructions.size());
  return out;
}

}  // namespace lockstep::detail
