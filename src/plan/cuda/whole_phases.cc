// Which steps of one kernel happen when.
#include <algorithm>
#include <cmath>
#include <map>

#include "plan/cuda/whole_kernel.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kChainBlocks = 2;       // the most blocks of a step that is part of a chain
constexpr double kChainOperations = 1e4;  // the most operations of its products
constexpr double kWorthAll = 1e6;         // operations for each processor: products for all of the GPU
constexpr size_t kLateTasks = 4;          // the most tasks of a last phase that no other phase waits for
constexpr int64_t kFew = 8;               // processors that are worth sharing work among

bool any_overlap(const std::vector<MemoryRange>& x, const std::vector<MemoryRange>& y) {
  return std::any_of(x.begin(), x.end(), [&](const MemoryRange& one) { return detail::any_overlap(y, one); });
}

// Does a thread need nothing of the first for its part of the second but what it has written itself?
bool follows(const KernelPart& first, const KernelPart& second) {
  if (first.kernel->steps().size() != 1 || second.kernel->steps().size() != 1) return false;
  const CudaStep &a = first.kernel->steps()[0], &b = second.kernel->steps()[0];
  if (a.elements == 0 || a.elements != b.elements || a.each != b.each || is_small(a)) return false;
  if (any_overlap(first.out, second.out) || any_overlap(first.in, second.out)) return false;
  for (const MemoryRange& written : first.out)
    for (size_t i = 0; i < second.in.size(); ++i) {
      const MemoryRange& read = second.in[i];
      if (!written.overlaps(read)) continue;
      if (written.begin != read.begin || written.end != read.end) return false;
      if (std::find(b.in_place.begin(), b.in_place.end(), i) == b.in_place.end()) return false;
    }
  return true;
}

}  // namespace

bool any_overlap(std::span<const MemoryRange> all, const MemoryRange& one) {
  return std::any_of(all.begin(), all.end(), [&](const MemoryRange& each) { return each.overlaps(one); });
}

bool conflict(const KernelPart& a, const KernelPart& b) {
  return any_overlap(a.out, b.in) || any_overlap(a.out, b.out) || any_overlap(a.in, b.out);
}

bool is_small(const CudaStep& step) {
  return step.blocks <= kChainBlocks && step.operations <= kChainOperations && !step.cooperative;
}

bool is_chain(std::span<const KernelPart> parts, const Task& task) {
  return task.size() > 1 && is_small(parts[task[0].part].kernel->steps()[task[0].step]);
}

namespace {

bool conflicts(std::span<const KernelPart> parts, const Task& task, const Phase& phase) {
  return std::any_of(phase.begin(), phase.end(), [&](const Task& other) {
    return std::any_of(other.begin(), other.end(), [&](const PartStep& each) {
      return std::any_of(task.begin(), task.end(), [&](const PartStep& step) {
        return step.part == each.part || conflict(parts[step.part], parts[each.part]);
      });
    });
  });
}

int64_t blocks_of(std::span<const KernelPart> parts, const Phase& phase) {
  int64_t out = 0;
  for (const Task& task : phase)
    out += is_chain(parts, task) ? 1 : parts[task[0].part].kernel->steps()[task[0].step].blocks;
  return out;
}

// What takes longest first: chains, which have a block of their own, then the largest products.
void longest_first(std::span<const KernelPart> parts, Phase& phase) {
  const auto weight = [&](const Task& task) {
    const CudaStep& step = parts[task[0].part].kernel->steps()[task[0].step];
    return is_chain(parts, task) ? HUGE_VAL : step.operations / static_cast<double>(std::max<int64_t>(step.blocks, 1));
  };
  std::stable_sort(phase.begin(), phase.end(), [&](const Task& a, const Task& b) { return weight(a) > weight(b); });
}

// As phases_of(), but no part is done before the phase `earliest` of its number; none: any may be.
std::vector<Phase> phases_from(std::span<const KernelPart> parts, std::span<const size_t> earliest) {
  struct Placed {
    PartStep at;
    bool small = false;
    size_t phase = 0, group = 0;
  };
  std::vector<Placed> all;
  std::vector<size_t> joined;  // by group: the group it was joined to, or itself
  const auto root = [&](size_t group) {
    while (joined[group] != group) group = joined[group];
    return group;
  };
  size_t phases = 0;
  for (size_t p = 0; p < parts.size(); ++p)
    for (size_t k = 0; k < parts[p].kernel->steps().size(); ++k) {
      Placed now{{p, k}, is_small(parts[p].kernel->steps()[k]), 0, all.size()};
      std::vector<size_t> before;
      for (size_t i = 0; i < all.size(); ++i)
        if (all[i].at.part == p || conflict(parts[all[i].at.part], parts[p])) before.push_back(i);
      size_t last = 0;  // phase of what comes before
      for (size_t i : before) {
        now.phase = std::max(now.phase, all[i].phase + (now.small && all[i].small ? 0 : 1));
        last = std::max(last, all[i].phase);
      }
      // Behind one step of the last phase, where that is all it needs of it.
      const auto in_last = [&](size_t i) { return all[i].phase == last; };
      if (now.phase == last + 1 && std::count_if(before.begin(), before.end(), in_last) == 1)
        if (const Placed& one = all[*std::find_if(before.begin(), before.end(), in_last)];
            follows(parts[one.at.part], parts[p]))
          now.phase = last;
      if (!earliest.empty()) now.phase = std::max(now.phase, earliest[p]);
      joined.push_back(now.group);
      for (size_t i : before)
        if (all[i].phase == now.phase) joined[root(all[i].group)] = root(now.group);
      phases = std::max(phases, now.phase + 1);
      all.push_back(now);
    }
  std::vector<Phase> out(phases);
  std::vector<std::pair<size_t, size_t>> place(all.size(), {0, SIZE_MAX});  // by group: its task
  for (const Placed& step : all) {
    auto& [phase, task] = place[root(step.group)];
    if (task == SIZE_MAX) {
      phase = step.phase;
      task = out[phase].size();
      out[phase].emplace_back();
    }
    out[phase][task].push_back(step.at);
  }
  for (Phase& phase : out) longest_first(parts, phase);
  return out;
}

// Which phase each step is done in, by part and step; but for small ones, if they do not matter.
std::map<std::pair<size_t, size_t>, size_t> places_of(std::span<const KernelPart> parts, std::span<const Phase> phases,
                                                      bool with_small) {
  std::map<std::pair<size_t, size_t>, size_t> out;
  for (size_t i = 0; i < phases.size(); ++i)
    for (const Task& task : phases[i])
      for (const PartStep& each : task)
        if (with_small || !is_small(parts[each.part].kernel->steps()[each.step])) out[{each.part, each.step}] = i;
  return out;
}

}  // namespace

std::vector<Phase> phases_of(std::span<const KernelPart> parts) { return phases_from(parts, {}); }

std::vector<Phase> balanced_phases(std::span<const KernelPart> parts, int processors) {
  const auto operations = [&](const Task& task) {
    double all = 0;
    for (const PartStep& each : task) all += parts[each.part].kernel->steps()[each.step].operations;
    return all;
  };
  const auto all_of = [&](const Phase& phase) {
    double all = 0;
    for (const Task& task : phase) all += operations(task);
    return all;
  };
  std::vector<Phase> phases = phases_of(parts);
  std::vector<size_t> earliest(parts.size(), 0);
  // Puts off a task, where that takes no phase more, and nothing else is put off, or by a product small steps at most.
  const auto postpone = [&](const Task& task, size_t to) {
    std::vector<size_t> when = earliest;
    for (const PartStep& each : task) when[each.part] = to;
    std::vector<Phase> trial = phases_from(parts, when);
    const bool with_small = operations(task) == 0;
    auto before = places_of(parts, phases, with_small), after = places_of(parts, trial, with_small);
    for (const PartStep& each : task) before.erase({each.part, each.step}), after.erase({each.part, each.step});
    if (trial.size() != phases.size() || before != after) return false;
    phases = std::move(trial);
    earliest = std::move(when);
    return true;
  };
  for (size_t i = phases.size(); i-- > 0;) {
    const double own = all_of(phases[i]), little = own / 8;
    if (own < kWorthAll * processors) continue;
    for (const Task& task : Phase(phases[i]))
      if (!is_small(parts[task[0].part].kernel->steps()[task[0].step]) && operations(task) <= little)
        for (size_t k = phases.size() - 1; k > i; --k)
          if (all_of(phases[k]) >= own && postpone(task, k)) break;
  }
  return phases;
}

bool overlaps_next_round(std::span<const KernelPart> parts, std::span<const Phase> phases, const RoundStrides& steps) {
  if (phases.size() < 2 || phases.back().size() > kLateTasks) return false;
  // Carries of two places are read as what the round before wrote: by another number.
  const auto alternates = [](const std::vector<size_t>& numbers, const std::vector<std::optional<int64_t>>& moves) {
    return std::any_of(numbers.begin(), numbers.end(), [&](size_t number) { return moves[number] == 0; });
  };
  return std::all_of(phases.back().begin(), phases.back().end(), [&](const Task& task) {
    return !conflicts(parts, task, phases[0]) && std::all_of(task.begin(), task.end(), [&](const PartStep& each) {
      const KernelPart& part = parts[each.part];
      return is_small(part.kernel->steps()[each.step]) && !alternates(part.operands, steps.in) &&
             !alternates(part.results, steps.out);
    });
  });
}

std::vector<Phase> round_phases(std::span<const KernelPart> parts, std::span<const Phase> phases,
                                const RoundStrides& steps, int processors) {
  std::vector<Phase> out(phases.begin(), phases.end());
  if (phases.size() < 3) return out;
  out[0].clear();
  for (const Task& task : phases[0]) {
    const bool moves = is_small(parts[task[0].part].kernel->steps()[task[0].step]) &&
                       conflicts(parts, task, phases.back()) && !conflicts(parts, task, phases[1]) &&
                       blocks_of(parts, out[1]) < processors;
    out[moves ? 1 : 0].push_back(task);
  }
  longest_first(parts, out[1]);
  return !out[0].empty() && overlaps_next_round(parts, out, steps) ? out
                                                                   : std::vector<Phase>(phases.begin(), phases.end());
}

uint32_t early_operands(std::span<const KernelPart> parts, const Task& task, std::span<const MemoryRange> written) {
  if (task.size() != 1) return 0;
  const KernelPart& part = parts[task[0].part];
  const std::vector<CudaStep::Early>& early = part.kernel->steps()[task[0].step].early;
  const auto is_written = [&](size_t operand) { return any_overlap(written, part.in[operand]); };
  uint32_t out = 0;
  for (size_t k = 0; k < early.size(); ++k)
    if (std::none_of(early[k].operands.begin(), early[k].operands.end(), is_written)) out |= 1u << k;
  return out;
}

void assign_blocks(std::vector<KernelPart>& parts, std::span<const Phase> phases, int processors,
                   std::deque<SteppedKernel>& made) {
  const auto remake = [&](size_t part, int64_t own) {
    parts[part].kernel = &made.emplace_back(parts[part].kernel->on(static_cast<int>(own)));
    return parts[part].kernel->steps()[0].blocks;
  };
  for (const Phase& phase : phases) {
    std::vector<std::pair<double, size_t>> products;
    double all = 0;
    int64_t blocks = 0;
    for (const Task& task : phase)
      if (const CudaStep& step = parts[task[0].part].kernel->steps()[task[0].step];
          task.size() == 1 && step.operations > 0) {
        products.emplace_back(step.operations, task[0].part);
        all += step.operations;
        blocks += step.blocks;
      } else if (is_chain(parts, task)) {
        ++blocks;
      }
    if (products.empty()) continue;
    std::stable_sort(products.begin(), products.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    const int64_t few = processors / 8;
    int64_t left = processors - blocks;
    if (products.size() > 1) {
      left = processors;
      for (const auto& [operations, part] : products) {
        auto own = static_cast<int64_t>(processors * operations / all);
        if (own < few) own = left >= kFew ? left : few;
        left -= remake(part, own);
      }
    }
    for (const Task& task : phase)
      if (const SteppedKernel& kernel = *parts[task[0].part].kernel; task.size() == 1 && kernel.steps().size() == 1)
        if (const CudaStep& step = kernel.steps()[0]; step.operations == 0 && !is_small(step) && step.blocks > left)
          left -= remake(task[0].part, left >= kFew ? left : processors / 4);
  }
}

}  // namespace lockstep::detail
