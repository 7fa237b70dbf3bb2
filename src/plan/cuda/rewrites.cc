#include "plan/cuda/rewrites.h"

#include <algorithm>
#include <utility>

#include "ops/cuda/cost_model.h"
#include "plan/cuda/kernel_text.h"
#include "plan/cuda/rewrites/phases.h"

namespace lockstep::detail {
namespace {

constexpr Rewrite kRewrites[] = {
    {"fuse_full_sums", fuse_full_sums, "products add up elements that are only summed, instead of writing them"},
    {"inline_producers", inline_producers, "tasks compute cheap operands themselves instead of reading them"},
    {"fuse_column_sums", fuse_column_sums, "products add up the columns of a matrix that they read anyway"},
    {"fuse_ranges", fuse_ranges, "thread blocks run tasks one after another on their own rows, without grid barriers"},
    {"fuse_exchange", fuse_exchange,
     "a product and what needs its complete rows are one task; partial sums are exchanged"},
    {"split_reductions", split_reductions, "reductions to few results become two tasks", false},
    {"assign_phases", assign_phases, "tasks get the earliest possible phase", false},
    {"balance_phases", balance_phases, "small tasks move out of phases in which products use all of the GPU"},
    {"assign_processors", assign_processors, "the tasks of a phase share the multiprocessors"},
    {"prefetch_operands", prefetch_operands, "thread blocks prefetch operands while they wait for a phase"},
};

thread_local std::vector<std::string> rewrites_off;

void run(void (*rewrite)(KernelSchedule&, const GpuTarget&), KernelSchedule& kernel, const GpuTarget& target) {
  const auto* const row = std::find_if(std::begin(kRewrites), std::end(kRewrites),
                                       [&](const Rewrite& each) { return each.run == rewrite; });
  if (!row->optional || rewrite_enabled(row->name)) rewrite(kernel, target);
}

bool fits(const KernelSchedule& kernel) { return pointer_count(kernel) <= cost_model::kMostPointers; }

void order(KernelSchedule& kernel, const GpuTarget& target) {
  run(assign_phases, kernel, target);
  run(balance_phases, kernel, target);
}

// Fuses ranges, and divides the multiprocessors among the tasks.
KernelSchedule divide(KernelSchedule kernel, const GpuTarget& target) {
  run(fuse_ranges, kernel, target);
  run(fuse_exchange, kernel, target);
  run(split_reductions, kernel, target);
  order(kernel, target);
  run(assign_processors, kernel, target);
  order(kernel, target);  // tasks that have other numbers of thread blocks now may belong to other phases
  return kernel;
}

// Whether a thread block of a product has something else to do in the same phase.
bool is_full(const KernelSchedule& kernel, const GpuTarget& target) {
  return std::any_of(kernel.phases.begin(), kernel.phases.end(), [&](const std::vector<size_t>& phase) {
    int64_t blocks = 0;
    bool multiplies = false;
    for (const size_t t : phase) {
      blocks += thread_blocks_of(kernel.tasks[t]);
      multiplies |= first_step(kernel.tasks[t]).operations > 0;
    }
    return multiplies && blocks > target.processors;
  });
}

// The kernel with all fusions that its pointers allow. Phases are assigned.
KernelSchedule fuse(const KernelSchedule& kernel, const GpuTarget& target) {
  KernelSchedule computed = kernel;
  run(fuse_full_sums, computed, target);
  run(inline_producers, computed, target);
  KernelSchedule all = divide(computed, target);
  // A product that also adds up columns takes longer, which is worth it only if no multiprocessor is idle.
  if (is_full(all, target)) {
    KernelSchedule columns = computed;
    run(fuse_column_sums, columns, target);
    if (columns.tasks.size() < computed.tasks.size())
      if (KernelSchedule added = divide(std::move(columns), target); fits(added)) return added;
  }
  if (fits(all)) return all;
  // Tasks that compute operands, and shared sums, may need more pointers.
  if (KernelSchedule plain = divide(kernel, target); fits(plain)) return plain;
  KernelSchedule out = kernel;
  run(split_reductions, out, target);
  order(out, target);
  return out;
}

}  // namespace

std::span<const Rewrite> all_rewrites() { return kRewrites; }

void optimize(KernelSchedule& kernel, const GpuTarget& target) {
  kernel = fuse(kernel, target);
  run(prefetch_operands, kernel, target);
}

bool rewrite_enabled(std::string_view name) {
  return std::find(rewrites_off.begin(), rewrites_off.end(), name) == rewrites_off.end();
}

RewritesOff::RewritesOff(std::vector<std::string> names) : before_(std::exchange(rewrites_off, std::move(names))) {}
RewritesOff::~RewritesOff() { rewrites_off = std::move(before_); }

}  // namespace lockstep::detail
