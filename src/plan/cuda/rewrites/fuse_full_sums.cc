// Worked example. A training step reports the size of the gradients: the sum of the squares of a million elements. A
// product computes and writes the squares; a phase of its own reads them again. With the sums fused, each thread block
// of the product adds up its squares, and the sum of all is that of a few hundred floats, which one thread block adds
// up.
#include <algorithm>
#include <optional>
#include <utility>

#include "plan/cuda/rewrites.h"

namespace lockstep::detail {
namespace {

// A result of a task, by index.
struct ResultRef {
  size_t task, result;
};

// The task that computes the only operand of task `reader`, which is its only reader. Nothing if it computes the
// operand in place.
std::optional<ResultRef> writer_for(const KernelSchedule& kernel, size_t reader) {
  const ValueId elements = kernel.tasks[reader].in[0].id;
  if (kernel.needed.contains(elements)) return {};
  const auto is_it = [&](const TaskValue& value) { return value.id == elements; };
  int64_t reads = 0;
  for (const GpuTask& task : kernel.tasks) {
    const std::vector<TaskValue> in = operands(task);
    reads += std::count_if(in.begin(), in.end(), is_it);
  }
  if (reads != 1) return {};
  for (size_t t = 0; t < reader; ++t) {
    const std::vector<TaskValue>& out = kernel.tasks[t].out;
    const auto at = std::find_if(out.begin(), out.end(), is_it);
    if (at == out.end()) continue;
    if (contains_memory(operands(kernel.tasks[t]), *at)) return {};
    return ResultRef{t, static_cast<size_t>(at - out.begin())};
  }
  return {};
}

}  // namespace

void fuse_full_sums(KernelSchedule& kernel, const GpuTarget& target) {
  const Type partial_sums{DType::f32, {kPartialSums}};
  for (size_t r = 0; r < kernel.tasks.size(); ++r) {
    if (kernel.tasks[r].in.size() != 1 || !traits_of(kernel.tasks[r], target).sums_all) continue;
    const std::optional<ResultRef> writer = writer_for(kernel, r);
    if (!writer || kernel.tasks[r].in[0].bytes() < partial_sums.bytes()) continue;
    GpuTask product = kernel.tasks[writer->task], sum = kernel.tasks[r];
    if (product.summed) continue;
    const ValueId id = unused_value(kernel);
    const TaskValue sums{id, partial_sums, id};
    product.summed = writer->result;
    product.out[writer->result] = sum.in[0] = sums;
    sum.attrs.set("axes", std::vector<int64_t>{0});
    sum.out[0].type.shape = {};
    if (!lower_row(product, target) || !lower_row(sum, target)) continue;
    kernel.tasks[writer->task] = std::move(product);
    kernel.tasks[r] = std::move(sum);
  }
}

}  // namespace lockstep::detail
