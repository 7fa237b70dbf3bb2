// Engine::memory() and Engine::describe().
#include <algorithm>

#include "lockstep/create.h"
#include "train/describe.h"
#include "train/engine_impl.h"

namespace lockstep {

std::vector<LaneMemory> Engine::memory(const TrainState& state, const Loader& loader, int64_t batch_size) const {
  const detail::CompiledSteps& steps = impl_->steps;
  const detail::StepState trained{state.params, state.optimizer, state.loss_scale};
  const int64_t micro_batches = impl_->options.accumulate;
  // A batch with the size and types of the real ones. The first micro-batch is the largest.
  const int64_t size = shard_range(batch_size, micro_batches, 0).size();
  const detail::BatchArrays batch = impl_->shardings.place(
      loader.resident() ? detail::BatchArrays{loader.images(), loader.labels(), {zeros({size}, i32)}}
                        : detail::BatchArrays{zeros({size, loader.rows(), loader.cols()}, u8), zeros({size}, u8), {}},
      size);
  std::vector<int64_t> work;
  if (micro_batches == 1) {
    work = steps.step_work(trained, batch, batch_size);
  } else {
    const detail::AccumulatedGrads sum = steps.zero_sum();
    work = steps.accumulate_work(sum, trained, batch, batch_size);
    const std::vector<int64_t> end = steps.finish_work(trained, sum);
    for (size_t i = 0; i < work.size(); ++i) work[i] = std::max(work[i], end[i]);
  }
  std::vector<LaneMemory> out = detail::persistent_memory(impl_->model, impl_->options, impl_->specs);
  for (size_t i = 0; i < out.size(); ++i) out[i].work = work.at(i);
  return out;
}

std::string Engine::describe() const {
  return detail::describe(impl_->model, impl_->options, impl_->specs,
                          detail::persistent_memory(impl_->model, impl_->options, impl_->specs));
}

std::string Engine::describe(const TrainState& state, const Loader& loader, int64_t batch_size) const {
  return detail::describe(impl_->model, impl_->options, impl_->specs, memory(state, loader, batch_size));
}

}  // namespace lockstep
