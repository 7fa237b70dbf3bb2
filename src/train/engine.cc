#include "lockstep/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
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

namespace {

EngineOptions checked(EngineOptions options) {
  check(options.optimizer);
  if (options.accumulate < 1)
    throw_error("engine: accumulate is {}; give a number of micro-batches of at least 1", options.accumulate);
  if (!(options.ema_decay >= 0 && options.ema_decay < 1))
    throw_error("engine: ema_decay is {}; give a number of at least 0 and below 1", options.ema_decay);
  if (!options.mesh.defined()) options.mesh = make_mesh({MeshAxis(options.plan.data_axis)});
  return options;
}

void assign_arrays(TrainState& state, detail::StepState arrays) {
  state.params = std::move(arrays.params);
  state.optimizer = std::move(arrays.optimizer);
  state.loss_scale = std::move(arrays.loss_scale);
  state.float8 = std::move(arrays.float8);
  state.average = std::move(arrays.average);
}

void add_counts(std::vector<int64_t>& sums, const Array& counts) {
  const std::span<const int64_t> more = counts.data<int64_t>();
  sums.resize(more.size());
  for (size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

}  // namespace

Engine::Impl::Impl(Task t, EngineOptions o)
    : task(std::move(t)),
      options(checked(std::move(o))),
      specs(specs_of(options.plan, options.mesh, task.paths, task.types)),
      shardings(task, options, specs),
      steps(task, options, shardings) {}

TrainState Engine::Impl::place(TrainState state) const {
  assign_arrays(state, shardings.place(detail::arrays_of(state)));
  return state;
}

Engine::Engine(Task task, EngineOptions options) : impl_(std::make_unique<Impl>(std::move(task), std::move(options))) {}
Engine::Engine(Model model, EngineOptions options) : Engine(image_task(model), std::move(options)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;

const Task& Engine::task() const { return impl_->task; }
const EngineOptions& Engine::options() const { return impl_->options; }

TrainState Engine::create_state() const { return impl_->new_state(impl_->task.init(random::key(impl_->options.seed))); }

TrainState Engine::create_state(const Checkpoint& weights) const {
  return impl_->new_state(detail::params_of(weights, impl_->task));
}

TrainState Engine::Impl::new_state(std::vector<Array> params) const {
  TrainState state{.seed = options.seed, .params = std::move(params)};
  const std::vector<Array> trained = detail::trained_of(task, state.params);
  state.optimizer = lockstep::create_state(options.optimizer, detail::trained_of(task, task.paths), trained);
  if (options.ema_decay > 0) state.average = trained;
  state.loss_scale = create_loss_scale(options.precision);
  state.float8 = create_float8_history(options.precision, detail::weight_matrices(task));
  return place(std::move(state));
}

template <class Compute>
auto Engine::Impl::replace_arrays(TrainState& state, const Compute& compute) const {
  detail::StepState before{std::move(state.params), std::move(state.optimizer), std::move(state.loss_scale),
                           std::move(state.float8), std::move(state.average)};
  try {
    auto [after, outputs] = compute(std::as_const(before));
    assign_arrays(state, std::move(after));
    return std::move(outputs);
  } catch (...) {
    assign_arrays(state, std::move(before));
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

detail::AccumulatedGrads Engine::Impl::accumulate(const detail::StepState& state, const Loader& loader,
                                                  const LoaderBatch& batch) const {
  std::optional<detail::AccumulatedGrads> sum;
  for (int64_t i = 0; i < options.accumulate; ++i) {
    const Range range = shard_range(batch.size, options.accumulate, i);
    // Without micro-batches, a process that has none of the examples takes part as well.
    if (range.size() == 0 && options.accumulate > 1) continue;
    const detail::StepBatch part = step_batch(loader, batch, range.begin, range.end);
    if (!sum) sum = steps.zero_sum(state, part, batch.global_size);
    sum = steps.accumulate(*sum, state, part, batch.global_size, static_cast<int>(i));
  }
  return *std::move(sum);
}

StartedStep Engine::Impl::start(TrainState& state, const Loader& loader, const LoaderBatch& batch,
                                bool ask_to_stop) const {
  check(batch);
  const detail::StopVotes votes = shardings.votes(ask_to_stop);
  detail::StepOutputs outputs = replace_arrays(state, [&](const detail::StepState& before) {
    if (options.accumulate == 1)
      return steps.step(before, step_batch(loader, batch, 0, batch.size), batch.global_size, votes);
    return steps.finish(before, accumulate(before, loader, batch), votes);
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
  return steps.step_instructions(detail::arrays_of(state), example_batch(loader.source(), batch_size), batch_size) == 1;
}

detail::StepBatch Engine::Impl::step_batch(const Loader& loader, const LoaderBatch& batch, int64_t begin,
                                           int64_t end) const {
  const bool all = begin == 0 && end == batch.size;
  const int64_t size = all ? batch.global_size : end - begin;
  const auto part = [&](const Array& a) {
    if (all) return a;
    Shape starts(a.shape().size(), 0), limits = a.shape();
    starts[0] = begin, limits[0] = end;
    return slice(a, starts, limits);
  };
  const int64_t source = steps.source_number(loader.source());
  // Reshard the batch before the call, because the compiled step is specialized to the shardings of its arguments.
  if (loader.resident()) return shardings.place({loader.source()->resident(), {part(batch.rows)}, source}, size);
  return shardings.place({tree_map(part, batch.fields), {}, source}, size);
}

detail::StepBatch Engine::Impl::example_batch(const SourcePtr& source, int64_t size) const {
  detail::StepBatch batch{source->resident(), {}, steps.source_number(source)};
  if (!batch.data.empty()) {
    batch.rows = {zeros({size}, i32)};
  } else {
    for (const Field& field : source->fields()) {
      Shape shape = {size};
      shape.insert(shape.end(), field.example.shape.begin(), field.example.shape.end());
      batch.data[field.name] = zeros(shape, field.example.dtype);
    }
  }
  return shardings.place(batch, size);
}

void Engine::Impl::prepare(const TrainState& state, const Loader& loader, const FitOptions& fit) const {
  if (!detail::computes_ahead() || options.accumulate > 1 || !loader.resident()) return;
  const int64_t full = loader.batch_size(), steps_left = fit.steps - state.step;
  std::vector<int64_t> sizes;
  if (steps_left > 0) sizes.push_back(full);
  if (steps_left > loader.full_batches_left()) sizes.push_back(loader.count() % full);
  for (const int64_t size : sizes)
    if (size > 0) steps.prepare_step(detail::arrays_of(state), example_batch(loader.source(), size), size);
  const SourcePtr& watched = fit.validation ? fit.validation : fit.test;
  if (!watched || steps_left <= 0) return;
  const auto prepare_evaluation = [&](const SourcePtr& set, bool predictions) {
    const int64_t count = set->count(), most = std::min(fit.eval_batch, count);
    for (const int64_t size : {most, most > 0 ? count % most : 0})
      if (size > 0)
        steps.prepare_evaluate(detail::evaluated_params(task, state), example_batch(set, size), predictions);
  };
  prepare_evaluation(watched, false);
  if (fit.predictions) prepare_evaluation(fit.test ? fit.test : watched, true);  // the last evaluation
}

Array Engine::Impl::start(TrainState& state, const Loader& loader, const LoaderBatches& batches) const {
  check(batches.each[0]);
  const detail::StepBatch arrays =
      device_put(detail::StepBatch{loader.source()->resident(), {batches.rows}, steps.source_number(loader.source())},
                 shardings.replicated);
  Array stats = replace_arrays(state, [&](const detail::StepState& before) {
    return steps.run_several(before, arrays, batches.each[0].global_size);
  });
  state.step += static_cast<int64_t>(batches.each.size());
  return stats;
}

namespace {

// Appends the mean of each metric. `sums` and `weights` are those of MetricSums.
void append_means(Scalars& out, const std::vector<detail::MetricForms::Form>& forms, std::span<const double> sums,
                  std::span<const double> weights, int64_t examples) {
  size_t weighted = 0;
  for (size_t i = 0; i < forms.size(); ++i) {
    const double count =
        forms[i].weighted ? weights[weighted++] : static_cast<double>(examples * forms[i].values_per_example);
    out.emplace_back(forms[i].name, count > 0 ? sums[i] / count : 0);
  }
}

}  // namespace

StepMetrics Engine::Impl::metrics(const StartedStep& step, std::span<const double> stats) const {
  const std::vector<detail::MetricForms::Form> forms = steps.step_metrics().get();
  const auto weighted =
      static_cast<size_t>(std::count_if(forms.begin(), forms.end(), [](const auto& form) { return form.weighted; }));
  size_t next = 0;
  const auto take = [&](size_t n) { return stats.subspan(std::exchange(next, next + n), n); };
  StepMetrics metrics;
  metrics.examples = step.examples;
  metrics.loss = take(1)[0];
  const auto sums = take(forms.size()), weights = take(weighted);
  metrics.metrics = {{"loss", metrics.loss}};
  append_means(metrics.metrics, forms, sums, weights, step.examples);
  if (task.derive) task.derive(metrics.metrics);
  metrics.metrics.erase(metrics.metrics.begin());
  metrics.learning_rate = take(1)[0];
  metrics.skipped = options.precision.loss_scaling && take(1)[0] == 0;
  if (!options.precision.loss_scaling) take(1);
  metrics.loss_scale = take(1)[0];
  double squares = 0;
  for (const double square : take(shardings.grads.size())) {
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

// Throws Error if labels were not counted because the model has no such class.
void check_labels(const EvalResult& result) {
  const auto labels = result.counts.find("labels");
  if (labels == result.counts.end()) return;
  const int64_t counted = std::accumulate(labels->second.begin(), labels->second.end(), int64_t{0});
  if (counted < result.examples)
    throw_error("evaluate: {} of {} labels are not among the {} classes of the model; use the data set of the model",
                result.examples - counted, result.examples, labels->second.size());
}

}  // namespace

double EvalResult::metric(std::string_view name) const {
  std::string known;
  for (const auto& [each, value] : metrics) {
    if (each == name) return value;
    known += (known.empty() ? "" : ", ") + each;
  }
  throw_error("evaluation: there is no metric {}; the metrics are {}", name, known);
}

EvalResult Engine::evaluate(const TrainState& state, const SourcePtr& source, int64_t batch_size,
                            const std::function<void(const BatchPredictions&)>& each) {
  if (batch_size < 1) throw_error("evaluate: the batch size is {}; give a positive number", batch_size);
  LoaderOptions options{.batch_size = std::min(batch_size, source->count()), .shuffle = false};
  if (process_count() > 1 && source->resident().empty())
    options.part = [this](int64_t n) { return process_range(impl_->shardings.examples, n); };
  Loader loader(source, options);
  const std::vector<Array> params = detail::evaluated_params(impl_->task, state);
  EvalResult result;
  result.examples = source->count();
  std::vector<double> sums, weights;
  std::vector<std::vector<int64_t>> counts;
  const auto add = [](std::vector<double>& totals, const std::vector<Array>& arrays) {
    totals.resize(arrays.size());
    for (size_t i = 0; i < arrays.size(); ++i) totals[i] += arrays[i].item<double>();
  };
  for (int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    const LoaderBatch batch = loader.next();
    const detail::EvalSums more =
        impl_->steps.evaluate(params, impl_->step_batch(loader, batch, 0, batch.size), static_cast<bool>(each));
    if (each && !more.predictions.empty())
      each({i * options.batch_size, more.predictions[0].to_vector<int32_t>(), more.predictions[1].to_vector<float>()});
    add(sums, more.metrics.sums);
    add(weights, more.metrics.weights);
    counts.resize(more.counts.size());
    for (size_t k = 0; k < counts.size(); ++k) add_counts(counts[k], more.counts[k]);
  }
  append_means(result.metrics, impl_->steps.eval_metrics().get(), sums, weights, result.examples);
  result.loss = result.metrics[0].second;
  if (impl_->task.derive) impl_->task.derive(result.metrics);
  const std::vector<detail::MetricForms::Form> forms = impl_->steps.eval_counts().get();
  for (size_t k = 0; k < counts.size(); ++k) result.counts[forms[k].name] = std::move(counts[k]);
  check_labels(result);
  return result;
}

std::string Engine::save(const TrainState& state) const {
  if (impl_->options.checkpoint_dir.empty())
    throw_error("save: the engine has no checkpoint_dir; set it in EngineOptions");
  Checkpoint checkpoint = detail::to_checkpoint(state, impl_->task, impl_->options.optimizer);
  checkpoint.config = impl_->options.config;
  return save_checkpoint(impl_->options.checkpoint_dir, checkpoint, {.files = impl_->options.files});
}

TrainState Engine::restore(const Checkpoint& checkpoint) const {
  return impl_->place(detail::from_checkpoint(checkpoint, impl_->task, impl_->options));
}

TrainState Engine::restore_or_create(const std::string& resume) {
  const auto warn = [&](const std::string& text) {
    for (const auto& logger : impl_->options.loggers) logger->message(0, text, true);
  };
  const std::optional<Checkpoint> found = find_checkpoint(impl_->options.checkpoint_dir, resume, warn, load_options());
  return found ? restore(*found) : create_state();
}

LoadOptions Engine::load_options() const {
  return {.sharding = [task = impl_->task, optimizer = impl_->options.optimizer, shardings = impl_->shardings](
                          const std::string& name,
                          const Type& type) { return detail::sharding_of(name, type, task, optimizer, shardings); },
          .files = impl_->options.files};
}

}  // namespace lockstep
