#include "lockstep/engine.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <utility>

#include "array/lane_memory.h"
#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/device_put.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
#include "plan/lanes.h"
#include "train/engine_impl.h"
#include "train/state.h"

namespace lockstep {

ImageArrays to_arrays(ImageDataset set) {
  return {Array::from(std::move(set.images), {set.count, set.rows, set.cols}),
          Array::from(std::move(set.labels), {set.count}), set.classes};
}

namespace {

EngineOptions checked(EngineOptions options) {
  check(options.optimizer);
  if (options.accumulate < 1)
    throw_error("engine: accumulate is {}; give a number of micro-batches of at least 1", options.accumulate);
  if (!(options.pixel_sd > 0)) throw_error("engine: pixel_sd is {}; give a positive number", options.pixel_sd);
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 1))
    throw_error("engine: label_smoothing is {}; give a number of at least 0 and below 1", options.label_smoothing);
  if (!options.mesh.defined()) options.mesh = make_mesh({MeshAxis(options.plan.data_axis)});
  return options;
}

void add(std::vector<int64_t>& sums, const Array& counts) {
  const std::span<const int32_t> more = counts.data<int32_t>();
  sums.resize(more.size());
  for (size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

}  // namespace

Engine::Impl::Impl(Model m, EngineOptions o)
    : model(std::move(m)),
      options(checked(std::move(o))),
      specs(specs_of(options.plan, options.mesh, model.paths, model.types)),
      shardings(options.mesh, options.plan.data_axis, specs),
      steps(model, options, shardings) {}

TrainState Engine::Impl::place(TrainState state) const {
  detail::StepState trained = shardings.place(
      detail::StepState{std::move(state.params), std::move(state.optimizer), std::move(state.loss_scale)});
  state.params = std::move(trained.params);
  state.optimizer = std::move(trained.optimizer);
  state.loss_scale = std::move(trained.loss_scale);
  return state;
}

Engine::Engine(Model model, EngineOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(options))) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;

const Model& Engine::model() const { return impl_->model; }
const EngineOptions& Engine::options() const { return impl_->options; }

TrainState Engine::create_state() const {
  TrainState state{.seed = impl_->options.seed};
  state.params = impl_->model.init(random::key(state.seed));
  state.optimizer = lockstep::create_state(impl_->options.optimizer, state.params);
  state.loss_scale = create_loss_scale(impl_->options.precision);
  return impl_->place(std::move(state));
}

template <class Compute>
auto Engine::Impl::replace_arrays(TrainState& state, const Compute& compute) const {
  detail::StepState before{std::move(state.params), std::move(state.optimizer), std::move(state.loss_scale)};
  const auto assign_arrays = [&](detail::StepState& arrays) {
    state.params = std::move(arrays.params);
    state.optimizer = std::move(arrays.optimizer);
    state.loss_scale = std::move(arrays.loss_scale);
  };
  try {
    auto [after, outputs] = compute(std::as_const(before));
    assign_arrays(after);
    return std::move(outputs);
  } catch (...) {
    assign_arrays(before);
    throw;
  }
}

void Engine::Impl::check(const LoaderBatch& batch) const {
  if (batch.size == batch.global_size) return;
  if (process_count() == 1)
    throw_error(
        "step: this is the only process, but it has {} of the {} examples of a batch; give it complete batches (a "
        "loader without `part`, with process_count 1)",
        batch.size, batch.global_size);
  if (options.accumulate > 1)
    throw_error(
        "step: process {} has {} of the {} examples of a batch with {} micro-batches; give every process complete "
        "batches (a loader without `part`), or set accumulate to 1",
        process_index(), batch.size, batch.global_size, options.accumulate);
}

StartedStep Engine::Impl::start(TrainState& state, const Loader& loader, const LoaderBatch& batch,
                                bool ask_to_stop) const {
  using detail::BatchArrays, detail::StepState;
  check(batch);
  const detail::StopVotes votes = shardings.votes(ask_to_stop);
  // Reshard the batch before the call, because the compiled step is specialized to the shardings of its arguments.
  const auto arrays = [&](int64_t begin, int64_t end) -> BatchArrays {
    const bool all = begin == 0 && end == batch.size;
    const int64_t size = all ? batch.global_size : end - begin;
    const auto part = [&](const Array& a) {
      if (all) return a;
      Shape starts(a.shape().size(), 0), limits = a.shape();
      starts[0] = begin, limits[0] = end;
      return slice(a, starts, limits);
    };
    if (loader.resident())
      return shardings.place(BatchArrays{loader.images(), loader.labels(), {part(batch.rows)}}, size);
    return shardings.place(BatchArrays{part(batch.images), part(batch.labels), {}}, size);
  };
  detail::StepOutputs outputs = replace_arrays(state, [&](const StepState& before) {
    if (options.accumulate == 1) return steps.step(before, arrays(0, batch.size), batch.global_size, votes);
    detail::AccumulatedGrads sum = steps.zero_sum();
    for (int64_t i = 0; i < options.accumulate; ++i) {
      const Range range = shard_range(batch.size, options.accumulate, i);
      if (range.size() > 0)
        sum = steps.accumulate(sum, before, arrays(range.begin, range.end), batch.global_size, static_cast<int>(i));
    }
    return steps.finish(before, sum, votes);
  });
  ++state.step;
  return {std::move(outputs), batch.global_size, ask_to_stop};
}

bool Engine::Impl::can_start_several(const TrainState& state, const Loader& loader, int64_t batch_size) const {
  if (!detail::computes_ahead() || !Lanes::current().main().info().fuses_scans || options.mesh.size() > 1 ||
      options.accumulate > 1 || !loader.resident())
    return false;
  // Otherwise the row list of each batch would have to be copied to an aligned address first.
  if (batch_size % static_cast<int64_t>(detail::StepOutputs::kStatsAlignment) != 0) return false;
  return steps.step_instructions({state.params, state.optimizer, state.loss_scale}, example_batch(loader, batch_size),
                                 batch_size) == 1;
}

detail::BatchArrays Engine::Impl::example_batch(const Loader& loader, int64_t size) const {
  return shardings.place(
      loader.resident() ? detail::BatchArrays{loader.images(), loader.labels(), {zeros({size}, i32)}}
                        : detail::BatchArrays{zeros({size, loader.rows(), loader.cols()}, u8), zeros({size}, u8), {}},
      size);
}

void Engine::Impl::prepare(const TrainState& state, const Loader& loader, const FitOptions& fit) const {
  if (!detail::computes_ahead() || options.accumulate > 1 || !loader.resident()) return;
  const int64_t full = loader.batch_size(), steps_left = fit.steps - state.step;
  std::vector<int64_t> sizes;
  if (steps_left > 0) sizes.push_back(full);
  if (steps_left > loader.full_batches_left()) sizes.push_back(loader.count() % full);
  for (const int64_t size : sizes)
    if (size > 0)
      steps.prepare_step({state.params, state.optimizer, state.loss_scale}, example_batch(loader, size), size);
  if (!fit.test || steps_left <= 0) return;
  const ImageArrays test = shardings.place(*fit.test);
  const int64_t count = test.labels.size(), most = std::min(fit.eval_batch, count);
  for (const int64_t size : {most, most > 0 ? count % most : 0})
    if (size > 0) steps.prepare_evaluate(state.params, test, device_put(zeros({size}, i32), shardings.examples));
}

Array Engine::Impl::start(TrainState& state, const Loader& loader, const LoaderBatches& batches) const {
  check(batches.each[0]);
  const detail::BatchArrays arrays{device_put(loader.images(), shardings.replicated),
                                   device_put(loader.labels(), shardings.replicated),
                                   {device_put(batches.rows, shardings.replicated)}};
  Array stats = replace_arrays(state, [&](const detail::StepState& before) {
    return steps.run_several(before, arrays, batches.each[0].global_size);
  });
  state.step += static_cast<int64_t>(batches.each.size());
  return stats;
}

StepMetrics Engine::Impl::metrics(const StartedStep& step, std::span<const double> stats) const {
  StepMetrics metrics;
  metrics.examples = step.examples;
  metrics.loss = stats[0];
  metrics.accuracy = stats[1] / static_cast<double>(step.examples);
  metrics.learning_rate = stats[2];
  metrics.skipped = options.precision.loss_scaling && stats[3] == 0;
  metrics.loss_scale = stats[4];
  double squares = 0;
  for (const double square : stats.subspan(detail::StepOutputs::kFirstNormSquare, model.types.size())) {
    metrics.grad_norms.push_back(std::sqrt(square));
    squares += square;
  }
  metrics.grad_norm = std::sqrt(squares);
  const std::vector<Array>& stop = step.outputs.stop;
  metrics.stop = stop.empty() ? step.asked_to_stop : stop[0].item<int>() > 0;
  return metrics;
}

StepMetrics Engine::step(TrainState& state, const Loader& loader, const LoaderBatch& batch, bool ask_to_stop) {
  const StartedStep started = impl_->start(state, loader, batch, ask_to_stop);
  return impl_->metrics(started, started.outputs.stats.to_vector<double>());
}

namespace {

void check(const ImageArrays& set) {
  if (set.images.dtype() != u8 || set.labels.dtype() != u8 || set.labels.rank() != 1 || set.images.rank() < 1 ||
      set.images.shape(0) != set.labels.size())
    throw_error("evaluate: the images are {} and the labels {}; give u8 arrays with as many images as labels",
                to_string(set.images.type()), to_string(set.labels.type()));
  for (const uint8_t label : set.labels.data<uint8_t>())
    if (label >= set.classes)
      throw_error("evaluate: a label is {}, but the set has {} classes; set `classes`, or fix the labels", label,
                  set.classes);
}

}  // namespace

EvalResult Engine::evaluate(const TrainState& state, const ImageArrays& set, int64_t batch_size) {
  if (batch_size < 1) throw_error("evaluate: the batch size is {}; give a positive number", batch_size);
  check(set);
  EvalResult result;
  result.examples = set.labels.size();
  result.labels.resize(static_cast<size_t>(set.classes));
  for (uint8_t label : set.labels.data<uint8_t>()) ++result.labels[label];
  const ImageArrays placed = impl_->shardings.place(set);
  double loss = 0;
  for (int64_t start = 0; start < result.examples; start += batch_size) {
    const int64_t size = std::min(batch_size, result.examples - start);
    std::vector<int32_t> rows(static_cast<size_t>(size));
    std::iota(rows.begin(), rows.end(), static_cast<int32_t>(start));
    const detail::EvalSums sums = impl_->steps.evaluate(
        state.params, placed, device_put(Array::from(std::move(rows), {size}), impl_->shardings.examples));
    loss += sums.loss.item<double>();
    result.correct += sums.correct.item<int64_t>();
    add(result.predictions, sums.predictions);
    add(result.hits, sums.hits);
  }
  if (result.examples > 0) {
    result.loss = loss / static_cast<double>(result.examples);
    result.accuracy = static_cast<double>(result.correct) / static_cast<double>(result.examples);
  }
  return result;
}

std::string Engine::save(const TrainState& state) const {
  if (impl_->options.checkpoint_dir.empty())
    throw_error("save: the engine has no checkpoint_dir; set it in EngineOptions");
  Checkpoint checkpoint = detail::to_checkpoint(state, impl_->model);
  checkpoint.config = impl_->options.config;
  return save_checkpoint(impl_->options.checkpoint_dir, checkpoint, {.files = impl_->options.files});
}

TrainState Engine::restore(const Checkpoint& checkpoint) const {
  return impl_->place(
      detail::from_checkpoint(checkpoint, impl_->model, impl_->options.optimizer, impl_->options.precision));
}

TrainState Engine::restore_or_create(const std::string& resume) {
  const auto warn = [&](const std::string& text) {
    for (const auto& logger : impl_->options.loggers) logger->message(0, text, true);
  };
  const std::optional<Checkpoint> found = find_checkpoint(impl_->options.checkpoint_dir, resume, warn, load_options());
  return found ? restore(*found) : create_state();
}

LoadOptions Engine::load_options() const {
  return {.sharding = [model = impl_->model, shardings = impl_->shardings](
                          const std::string& name,
                          const Type& type) { return detail::sharding_of(name, type, model, shardings); },
          .files = impl_->options.files};
}

}  // namespace lockstep
