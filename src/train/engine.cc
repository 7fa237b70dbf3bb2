#include "lockstep/engine.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <utility>

#include "array/gpu_memory.h"
#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/device_put.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
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
    throw_error("engine: accumulate is {}; the number of pieces of a batch is at least 1", options.accumulate);
  if (!(options.pixel_sd > 0))
    throw_error("engine: pixel_sd is {}; it divides, so give a positive number", options.pixel_sd);
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 1))
    throw_error("engine: label_smoothing is {}; it lies in [0, 1)", options.label_smoothing);
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
      layout(options.mesh, options.plan.data_axis, specs),
      steps(model, options, layout) {}

TrainState Engine::Impl::placed(TrainState state) const {
  detail::Trained trained =
      layout.placed(detail::Trained{std::move(state.params), std::move(state.optimizer), std::move(state.loss_scale)});
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
  return impl_->placed(std::move(state));
}

template <class After>
auto Engine::Impl::replaced(TrainState& state, const After& after) const {
  detail::Trained before{std::move(state.params), std::move(state.optimizer), std::move(state.loss_scale)};
  const auto put = [&](detail::Trained& trained) {
    state.params = std::move(trained.params);
    state.optimizer = std::move(trained.optimizer);
    state.loss_scale = std::move(trained.loss_scale);
  };
  try {
    auto [trained, said] = after(std::as_const(before));
    put(trained);
    return std::move(said);
  } catch (...) {
    put(before);
    throw;
  }
}

StartedStep Engine::Impl::start(TrainState& state, const Loader& loader, const LoaderBatch& batch,
                                bool ask_to_stop) const {
  using detail::BatchArrays, detail::Trained;
  if (options.accumulate > 1 && batch.size != batch.global_size)
    throw_error(
        "step: process {} has {} of the {} examples of a batch that is computed in {} pieces; give every process whole "
        "batches (a loader without `part`), or accumulate 1",
        process_index(), batch.size, batch.global_size, options.accumulate);
  const detail::Votes votes = layout.votes(ask_to_stop);
  // The batch is placed before the call: what the compiled step is cut by is how its arguments lie.
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
      return layout.placed(BatchArrays{loader.images(), loader.labels(), {part(batch.rows)}}, size);
    return layout.placed(BatchArrays{part(batch.images), part(batch.labels), {}}, size);
  };
  detail::StepOutputs outputs = replaced(state, [&](const Trained& before) {
    if (options.accumulate == 1) return steps.step(before, arrays(0, batch.size), batch.global_size, votes);
    detail::Accumulated sum = steps.empty_sum();
    for (int64_t piece = 0; piece < options.accumulate; ++piece) {
      const Range range = shard_range(batch.size, options.accumulate, piece);
      if (range.size() > 0)
        sum = steps.accumulate(sum, before, arrays(range.begin, range.end), batch.global_size, static_cast<int>(piece));
    }
    return steps.finish(before, sum, votes);
  });
  ++state.step;
  return {std::move(outputs), batch.global_size, ask_to_stop};
}

bool Engine::Impl::starts_several(const TrainState& state, const Loader& loader, int64_t batch_size) const {
  if (!detail::one_gpu_in_use() || options.mesh.size() > 1 || options.accumulate > 1 || !loader.resident())
    return false;
  // Rows of other numbers would have to be copied to where a kernel reads them, one batch after the other.
  if (batch_size % static_cast<int64_t>(detail::StepOutputs::kTogether) != 0) return false;
  return steps.step_instructions({state.params, state.optimizer, state.loss_scale}, any_batch(loader, batch_size),
                                 batch_size) == 1;
}

detail::BatchArrays Engine::Impl::any_batch(const Loader& loader, int64_t size) const {
  return layout.placed({loader.images(), loader.labels(), {zeros({size}, i32)}}, size);
}

void Engine::Impl::prepare(const TrainState& state, const Loader& loader, const FitOptions& fit) const {
  if (!detail::one_gpu_in_use() || options.accumulate > 1 || !loader.resident()) return;
  const int64_t whole = loader.batch_size(), steps_left = fit.steps - state.step;
  std::vector<int64_t> sizes;
  if (steps_left > 0) sizes.push_back(whole);
  if (steps_left > loader.full_batches_left()) sizes.push_back(loader.count() % whole);
  for (const int64_t size : sizes)
    if (size > 0) steps.prepare_step({state.params, state.optimizer, state.loss_scale}, any_batch(loader, size), size);
  if (!fit.test || steps_left <= 0) return;
  const ImageArrays test = layout.placed(*fit.test);
  const int64_t count = test.labels.size(), most = std::min(fit.eval_batch, count);
  for (const int64_t size : {most, most > 0 ? count % most : 0})
    if (size > 0) steps.prepare_evaluate(state.params, test, device_put(zeros({size}, i32), layout.cut));
}

Array Engine::Impl::start(TrainState& state, const Loader& loader, const LoaderBatches& batches) const {
  if (const LoaderBatch& batch = batches.each[0]; batch.size != batch.global_size)
    throw_error(
        "step: there is one process, and it has {} of the {} examples of a batch; give it whole batches (a loader "
        "without `part`, of one process)",
        batch.size, batch.global_size);
  const detail::BatchArrays arrays{device_put(loader.images(), layout.whole),
                                   device_put(loader.labels(), layout.whole),
                                   {device_put(batches.rows, layout.whole)}};
  Array facts = replaced(
      state, [&](const detail::Trained& before) { return steps.several(before, arrays, batches.each[0].global_size); });
  state.step += static_cast<int64_t>(batches.each.size());
  return facts;
}

StepMetrics Engine::Impl::metrics(const StartedStep& step, std::span<const double> facts) const {
  StepMetrics metrics;
  metrics.examples = step.examples;
  metrics.loss = facts[0];
  metrics.accuracy = facts[1] / static_cast<double>(step.examples);
  metrics.learning_rate = facts[2];
  metrics.skipped = options.precision.loss_scaling && facts[3] == 0;
  metrics.loss_scale = facts[4];
  double squares = 0;
  for (const double square : facts.subspan(detail::StepOutputs::kSquares, model.types.size())) {
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
  return impl_->metrics(started, started.outputs.facts.to_vector<double>());
}

namespace {

void check(const ImageArrays& set) {
  if (set.images.dtype() != u8 || set.labels.dtype() != u8 || set.labels.rank() != 1 || set.images.rank() < 1 ||
      set.images.shape(0) != set.labels.size())
    throw_error("evaluate: the images are {} and the labels {}; give u8 of as many images as labels",
                to_string(set.images.type()), to_string(set.labels.type()));
  for (const uint8_t label : set.labels.data<uint8_t>())
    if (label >= set.classes)
      throw_error("evaluate: there is a label {} and the set is of {} classes; set `classes`, or mend the labels",
                  label, set.classes);
}

}  // namespace

EvalResult Engine::evaluate(const TrainState& state, const ImageArrays& set, int64_t batch_size) {
  if (batch_size < 1) throw_error("evaluate: the batch size is {}; give a positive number", batch_size);
  check(set);
  EvalResult result;
  result.examples = set.labels.size();
  result.labels.resize(static_cast<size_t>(set.classes));
  for (uint8_t label : set.labels.data<uint8_t>()) ++result.labels[label];
  const ImageArrays placed = impl_->layout.placed(set);
  double loss = 0;
  for (int64_t start = 0; start < result.examples; start += batch_size) {
    const int64_t size = std::min(batch_size, result.examples - start);
    std::vector<int32_t> rows(static_cast<size_t>(size));
    std::iota(rows.begin(), rows.end(), static_cast<int32_t>(start));
    const detail::EvalSums sums = impl_->steps.evaluate(
        state.params, placed, device_put(Array::from(std::move(rows), {size}), impl_->layout.cut));
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
  if (impl_->options.checkpoint_dir.empty()) throw_error("save: the engine has no checkpoint_dir; give it one");
  Checkpoint checkpoint = detail::to_checkpoint(state, impl_->model);
  checkpoint.config = impl_->options.config;
  return save_checkpoint(impl_->options.checkpoint_dir, checkpoint, {.files = impl_->options.files});
}

TrainState Engine::restore(const Checkpoint& checkpoint) const {
  return impl_->placed(
      detail::from_checkpoint(checkpoint, impl_->model, impl_->options.optimizer, impl_->options.precision));
}

TrainState Engine::restore_or_create(const std::string& resume) {
  const auto say = [&](const std::string& text) {
    for (const auto& logger : impl_->options.loggers) logger->message(0, text, true);
  };
  const std::optional<Checkpoint> found = find_checkpoint(impl_->options.checkpoint_dir, resume, say, load_options());
  return found ? restore(*found) : create_state();
}

LoadOptions Engine::load_options() const {
  return {.sharding = [model = impl_->model, layout = impl_->layout](
                          const std::string& name,
                          const Type& type) { return detail::sharding_of(name, type, model, layout); },
          .files = impl_->options.files};
}

}  // namespace lockstep
