// Engine::memory(), Engine::schedule(), Engine::describe(), and the work of a step.
#include <fmt/format.h>

#include <algorithm>

#include "base/names.h"
#include "lockstep/create.h"
#include "lockstep/device_put.h"
#include "train/describe.h"
#include "train/engine_impl.h"

namespace lockstep {

std::vector<LaneMemory> Engine::memory(const TrainState& state, const Loader& loader, int64_t batch_size) const {
  const detail::CompiledSteps& steps = impl_->steps;
  const detail::StepState trained = detail::arrays_of(state);
  const int64_t micro_batches = impl_->options.accumulate;
  // The first micro-batch is the largest.
  const detail::StepBatch batch =
      impl_->example_batch(loader.source(), shard_range(batch_size, micro_batches, 0).size());
  std::vector<int64_t> work;
  if (micro_batches == 1) {
    work = steps.step_work(trained, batch, batch_size);
  } else {
    const detail::AccumulatedGrads sum = steps.zero_sum(trained, batch, batch_size);
    work = steps.accumulate_work(sum, trained, batch, batch_size);
    const std::vector<int64_t> end = steps.finish_work(trained, sum);
    for (size_t i = 0; i < work.size(); ++i) work[i] = std::max(work[i], end[i]);
  }
  std::vector<LaneMemory> out = detail::persistent_memory(impl_->task, impl_->options, impl_->specs);
  for (size_t i = 0; i < out.size(); ++i) out[i].work = work.at(i);
  return out;
}

double Engine::Impl::multiply_adds(const TrainState& state, const Loader& loader, int64_t batch_size) const {
  const detail::StepState trained = detail::arrays_of(state);
  const int64_t micro_batches = options.accumulate;
  const detail::StepBatch batch = example_batch(loader.source(), shard_range(batch_size, micro_batches, 0).size());
  if (micro_batches == 1) return steps.step_multiply_adds(trained, batch, batch_size);
  const detail::AccumulatedGrads sum = steps.zero_sum(trained, batch, batch_size);
  return static_cast<double>(micro_batches) * steps.accumulate_multiply_adds(sum, trained, batch, batch_size) +
         steps.finish_multiply_adds(trained, sum);
}

std::string Engine::schedule(const TrainState& state, const Loader& loader) const {
  const detail::CompiledSteps& steps = impl_->steps;
  const detail::StepState trained = detail::arrays_of(state);
  const int64_t batch_size = loader.batch_size(), micro_batches = impl_->options.accumulate;
  if (micro_batches > 1) {
    const int64_t size = shard_range(batch_size, micro_batches, 0).size();
    const detail::StepBatch batch = impl_->example_batch(loader.source(), size);
    const detail::AccumulatedGrads sum = steps.zero_sum(trained, batch, batch_size);
    return fmt::format("a micro-batch of {}:\n{}the update:\n{}", counted(size, "example"),
                       steps.accumulate_schedule(sum, trained, batch, batch_size), steps.finish_schedule(trained, sum));
  }
  std::string out = fmt::format("a step of {}:\n{}", counted(batch_size, "example"),
                                steps.schedule(trained, impl_->example_batch(loader.source(), batch_size), batch_size));
  if (!impl_->can_start_several(state, loader, batch_size)) return out;
  const Array rows = zeros({static_cast<int64_t>(kStepsAhead), batch_size}, i32);
  const detail::StepBatch batches =
      device_put(detail::StepBatch{loader.source()->resident(), {rows}, steps.source_number(loader.source())},
                 impl_->shardings.replicated);
  return out +
         fmt::format("{} steps in one call:\n{}", kStepsAhead, steps.several_schedule(trained, batches, batch_size));
}

std::string Engine::describe() const {
  return detail::describe(impl_->task, impl_->options, impl_->specs,
                          detail::persistent_memory(impl_->task, impl_->options, impl_->specs));
}

std::string Engine::describe(const TrainState& state, const Loader& loader, int64_t batch_size) const {
  return detail::describe(impl_->task, impl_->options, impl_->specs, memory(state, loader, batch_size));
}

}  // namespace lockstep
