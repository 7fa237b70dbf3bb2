#include "train/steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "lockstep/averages.h"
#include "lockstep/control.h"
#include "lockstep/create.h"
#include "lockstep/device_put.h"
#include "lockstep/grad.h"
#include "lockstep/indexing.h"
#include "lockstep/math.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "train/state.h"

namespace lockstep::detail {

// The parameters of the traced functions, by value because the functions outlive the constructor's arguments.
struct CompiledSteps::Recipe {
  Task task;
  Optimizer optimizer;
  Precision precision;
  double ema_decay;
  uint64_t seed;
  bool remat;
  std::shared_ptr<const Sources> sources;
  std::shared_ptr<MetricForms> step_metrics, eval_metrics, eval_counts;

  BatchArrays fields(const StepBatch& batch) const {
    if (batch.rows.empty()) return batch.data;
    return (*sources)[static_cast<size_t>(batch.source)]->gather(batch.data, batch.rows[0]);
  }
  // The parameters that are not trained.
  std::vector<Array> states_of(const std::vector<Array>& params) const {
    std::vector<Array> out;
    for (size_t i = 0; i < params.size(); ++i)
      if (!task.trained[i]) out.push_back(params[i]);
    return out;
  }
  // All parameters, from the trained ones and the others.
  std::vector<Array> merge(const std::vector<Array>& trained, const std::vector<Array>& states) const {
    std::vector<Array> out;
    auto next_trained = trained.begin(), next_state = states.begin();
    for (const bool is_trained : task.trained) out.push_back(is_trained ? *next_trained++ : *next_state++);
    return out;
  }

  AccumulatedGrads gradients(const StepState& state, const std::vector<Array>& states, const StepBatch& batch,
                             int64_t global_size, const Array& micro_batch) const;
  std::pair<StepState, StepOutputs> updated(const StepState& state, const AccumulatedGrads& sum,
                                            const StopVotes& votes) const;
  EvalSums evaluate(const std::vector<Array>& params, const StepBatch& batch, bool predictions) const;
};

namespace {

int64_t examples_of(const BatchArrays& fields) { return fields.begin()->second.shape(0); }

// Throws Error unless the values are a scalar or have one row per example, and the weights fit.
void check_mean(const std::string& what, const Mean& mean, int64_t examples) {
  if (!mean.values.defined()) throw_error("task: {} is an undefined array; assign its values", what);
  if (mean.values.rank() > 0 && mean.values.shape(0) != examples)
    throw_error("task: {} is {} for a batch of {} examples; return one row per example, or a scalar mean", what,
                to_string(mean.values.type()), examples);
  if (mean.weights.defined() && mean.weights.shape() != mean.values.shape())
    throw_error("task: {} is {}, but its weights are {}; give one weight per value", what,
                to_string(mean.values.type()), to_string(mean.weights.type()));
  if (mean.weights.defined() && mean.values.rank() == 0)
    throw_error("task: {} is a scalar with a weight; return one row per example to weight them", what);
}

// Up to here f32 has all integers.
constexpr double kExactInF32 = 1 << 24;

// The largest magnitude of an integer type; 1 of others.
double largest_magnitude(DType dtype) {
  if (dtype == boolean || is_floating(dtype)) return 1;
  return std::ldexp(1, static_cast<int>(size_of(dtype)) * 8 - (is_signed(dtype) ? 1 : 0));
}

MetricForms::Form form_of(const std::string& name, const Mean& mean) {
  const int64_t rows = mean.values.rank() == 0 ? 1 : std::max<int64_t>(mean.values.shape(0), 1);
  return {name, mean.values.size() / rows, mean.weights.defined()};
}

// Values in a type in which they can be added up: integers exactly. `bound`: of the magnitude of the sum. The type is i32
// if the sum is also exact in f32.
Array countable(const Array& values, double bound) {
  if (is_floating(values.dtype())) return values.dtype() == f64 ? values : astype(values, f32);
  if (values.dtype() == u64) return astype(values, f64);
  return astype(values, bound <= kExactInF32 ? i32 : i64);
}

// Adds up the metrics, and stores their forms. `most`: the number of examples over which sums are added up.
MetricSums metric_sums(const TaskResult& result, int64_t examples, int64_t most, MetricForms& forms) {
  MetricSums out;
  std::vector<MetricForms::Form> each;
  for (const auto& [name, metric] : result.metrics) {
    check_mean("metric " + name, metric, examples);
    each.push_back(form_of(name, metric));
    const auto count = static_cast<double>(most * each.back().values_per_example);
    const double bound = largest_magnitude(metric.values.dtype()) * count;
    if (!each.back().weighted) {
      const Array values = countable(metric.values, bound);
      out.sums.push_back(metric.values.rank() == 0 ? values * examples : sum(values));
      continue;
    }
    const double largest_weight = largest_magnitude(metric.weights.dtype());
    out.sums.push_back(
        sum(countable(metric.values, bound * largest_weight) * countable(metric.weights, bound * largest_weight)));
    out.weights.push_back(sum(countable(metric.weights, count * largest_weight)));
  }
  forms.set(std::move(each));
  return out;
}

// The part of a batch's mean loss that these values contribute, and of its mean weight if they are weighted.
struct LossShare {
  Array loss;
  std::vector<Array> weight;
};
LossShare loss_share(const Mean& loss, int64_t examples, int64_t global_size) {
  check_mean("the loss", loss, examples);
  if (!is_floating(loss.values.dtype()))
    throw_error("task: the loss is {}; return floating-point values", to_string(loss.values.type()));
  if (loss.values.rank() == 0) {
    if (examples == global_size) return {loss.values, {}};
    return {loss.values * (static_cast<double>(examples) / static_cast<double>(global_size)), {}};
  }
  const auto all = static_cast<double>(global_size * form_of("", loss).values_per_example);
  if (!loss.weights.defined()) return {sum(loss.values) / all, {}};
  const Array weights = astype(loss.weights, loss.values.dtype());
  return {sum(loss.values * weights) / all, {stop_gradient(sum(weights) / all)}};
}

}  // namespace

AccumulatedGrads CompiledSteps::Recipe::gradients(const StepState& state, const std::vector<Array>& states,
                                                  const StepBatch& batch, int64_t global_size,
                                                  const Array& micro_batch) const {
  const BatchArrays arrays = fields(batch);
  const Array key = step_key(seed, state.optimizer.step, micro_batch);
  const auto loss = [&](const std::vector<Array>& trained, const std::vector<Array>& scales) {
    nn::StateUpdates updates;
    nn::Float8Products float8(scales);
    const nn::Mode mode{.training = true,
                        .key = key,
                        .compute = precision.compute,
                        .updates = &updates,
                        .remat = remat,
                        .float8 = precision.float8 ? &float8 : nullptr};
    const TaskResult result = task.loss(merge(cast_floating(trained, precision.compute), states), arrays, mode);
    if (precision.float8 && float8.used() == 0)
      throw_error("precision float8: model {} applies no nn::Linear layer with its mode; choose bfloat16", task.name);
    const int64_t examples = examples_of(arrays);
    LossShare share = loss_share(result.loss, examples, global_size);
    std::vector<Array> next;
    for (const Array& each : states) next.push_back(stop_gradient(updates.value(each)));
    AccumulatedGrads sums{{}, share.loss,     share.weight, metric_sums(result, examples, global_size, *step_metrics),
                          {}, std::move(next)};
    return std::pair{scaled(state.loss_scale, share.loss), std::move(sums)};
  };
  auto [value, grads] = value_and_grad<0, 1>(loss)(trained_of(task, state.params), float8_scales(state.float8));
  AccumulatedGrads out = std::move(value.second);
  out.grads = std::move(std::get<0>(grads));
  out.largest = std::move(std::get<1>(grads));
  return out;
}

std::pair<StepState, StepOutputs> CompiledSteps::Recipe::updated(const StepState& state, const AccumulatedGrads& sum,
                                                                 const StopVotes& votes) const {
  std::vector<Array> grads = unscaled(state.loss_scale, sum.grads);
  Array loss = sum.loss;
  for (const Array& weight : sum.weight) {  // at most one
    const Array factor = 1 / where(weight > 0, weight, 1);
    for (Array& g : grads) g = g * astype(factor, g.dtype());
    loss = loss * factor;
  }
  const std::vector<std::string> paths = trained_of(task, task.paths);
  const std::vector<ParameterRule> rules = rules_of(optimizer, paths, trained_of(task, task.types));
  std::vector<Array> squares;  // 0 for frozen parameters, whose gradients are then not computed
  for (size_t i = 0; i < grads.size(); ++i)
    squares.push_back(rules[i].frozen ? zeros({}) : lockstep::sum(square(grads[i])));
  const Array norm = sqrt(lockstep::sum(stack(squares)));  // unused, and so not computed, without clipping or scaling
  const Array finite = isfinite(norm);
  Update next = update(optimizer, paths, trained_of(task, state.params), grads, state.optimizer, norm);
  StepState after{
      merge(next.params, sum.states), std::move(next.state), state.loss_scale, advanced(state.float8, sum.largest), {}};
  if (ema_decay > 0) after.average = update_average(state.average, next.params, ema_decay, state.optimizer.step);
  if (precision.loss_scaling) {
    const auto keep = [&](const Array& fresh, const Array& old) { return where(finite, fresh, old); };
    after.params = tree_map(keep, after.params, state.params);
    after.optimizer = tree_map(keep, after.optimizer, state.optimizer);
    after.average = tree_map(keep, after.average, state.average);
    after.loss_scale = adjusted(precision, state.loss_scale, finite);
  }
  const auto needs_f64 = [](const Array& a) { return a.dtype() == f64 || a.dtype() == i64; };
  const auto any_needs_f64 = [&](const std::vector<Array>& arrays) {
    return std::any_of(arrays.begin(), arrays.end(), needs_f64);
  };
  const bool is_wide = needs_f64(loss) || any_needs_f64(sum.metrics.sums) || any_needs_f64(sum.metrics.weights);
  const DType wide = is_wide ? f64 : f32;
  std::vector<Array> stats;
  const auto add = [&](const Array& each) { stats.push_back(astype(each, wide)); };
  add(loss);
  for (const Array& each : sum.metrics.sums) add(each);
  for (const Array& each : sum.metrics.weights) add(each);
  const Array one = 1.0f;
  add(optimizer.schedule(state.optimizer.step));
  add(precision.loss_scaling ? finite : one);
  add(precision.loss_scaling ? after.loss_scale.scale[0] : one);
  for (const Array& each : squares) add(each);
  const Array padding = zeros({}, wide);
  while (stats.size() % StepOutputs::kStatsAlignment != 0) stats.push_back(padding);
  StepOutputs outputs{stack(stats), {}};
  for (const Array& vote : votes) outputs.stop.push_back(lockstep::sum(vote));
  return {std::move(after), std::move(outputs)};
}

EvalSums CompiledSteps::Recipe::evaluate(const std::vector<Array>& params, const StepBatch& batch,
                                         bool predictions) const {
  const BatchArrays arrays = fields(batch);
  const int64_t examples = examples_of(arrays);
  const std::vector<Array> cast = cast_floating(trained_of(task, params), precision.compute);
  const std::vector<Array> all = merge(cast, states_of(params));
  const nn::Mode mode{.compute = precision.compute};
  TaskResult result = task.loss(all, arrays, mode);
  // The loss is a metric like the others, and the first of them.
  result.metrics.insert(result.metrics.begin(), {"loss", result.loss});
  EvalSums out{metric_sums(result, examples, examples, *eval_metrics), {}, {}};
  std::vector<MetricForms::Form> forms;
  for (const auto& [name, counts] : result.counts) {
    if (counts.rank() != 2 || counts.shape(0) != examples || is_floating(counts.dtype()))
      throw_error("task: the counts {} are {} for a batch of {} examples; return integers [examples, k]", name,
                  to_string(counts.type()), examples);
    forms.push_back({name, counts.shape(1), false});
    const double bound = largest_magnitude(counts.dtype()) * static_cast<double>(examples);
    out.counts.push_back(astype(sum(countable(counts, bound), 0), i64));
    if (predictions && name == "labels" && task.outputs)
      out.predictions = {argmax(countable(counts, 1), -1), softmax(astype(task.outputs(all, arrays, mode), f32))};
  }
  eval_counts->set(std::move(forms));
  return out;
}

namespace {

std::vector<Array> place_each(const std::vector<Array>& arrays, const std::vector<NamedSharding>& shardings) {
  std::vector<Array> out;
  for (size_t i = 0; i < arrays.size(); ++i) out.push_back(device_put(arrays[i], shardings[i]));
  return out;
}

}  // namespace

Array step_key(uint64_t seed, const Array& step, const Array& micro_batch) {
  return random::fold_in(random::fold_in(random::key(seed), step), micro_batch);
}

StepState arrays_of(const TrainState& state) {
  return {state.params, state.optimizer, state.loss_scale, state.float8, state.average};
}

TrainShardings::TrainShardings(const Task& task, const EngineOptions& options, const std::vector<ParameterSpecs>& specs)
    : replicated(options.mesh, P()),
      examples(options.mesh, P(options.plan.data_axis)),
      per_device(options.mesh, PartitionSpec{{SpecEntry(options.mesh.axis_names())}}) {
  const Mesh& mesh = options.mesh;
  for (const ParameterSpecs& each : specs) params.emplace_back(mesh, each.param);
  const std::vector<ParameterSpecs> own = trained_of(task, specs);
  for (const ParameterSpecs& each : own) {
    trained.emplace_back(mesh, each.param);
    grads.emplace_back(mesh, each.grad);
  }
  for (const StateArray& each :
       state_arrays(options.optimizer, trained_of(task, task.paths), trained_of(task, task.types)))
    optimizer.emplace_back(mesh, state_spec(each, own[each.parameter].state));
}

StepState TrainShardings::place(const StepState& state) const {
  std::vector<Array> arrays = tree_leaves(state.optimizer);  // the step, then the arrays of state_arrays()
  arrays[0] = device_put(arrays[0], replicated);
  for (size_t i = 1; i < arrays.size(); ++i) arrays[i] = device_put(arrays[i], optimizer[i - 1]);
  return {place_each(state.params, params), tree_unflatten(state.optimizer, arrays),
          device_put(state.loss_scale, replicated), device_put(state.float8, replicated),
          place_each(state.average, trained)};
}

AccumulatedGrads TrainShardings::place(const AccumulatedGrads& sum) const {
  return {place_each(sum.grads, grads),        device_put(sum.loss, replicated),    device_put(sum.weight, replicated),
          device_put(sum.metrics, replicated), device_put(sum.largest, replicated), device_put(sum.states, replicated)};
}

StepBatch TrainShardings::place(const StepBatch& batch, int64_t global_size) const {
  // `own` is this process's part of the batch, or the complete batch.
  const auto shard_rows = [&](const Array& own) {
    Shape shape = own.shape();
    if (shape[0] == global_size) return device_put(own, examples);
    shape[0] = global_size;
    return make_array_from_process_local_data(examples, own, shape);
  };
  if (batch.rows.empty()) return {tree_map(shard_rows, batch.data), {}, batch.source};
  return {device_put(batch.data, replicated), {shard_rows(batch.rows[0])}, batch.source};
}

StopVotes TrainShardings::votes(bool stop) const {
  if (process_count() == 1) return {};
  const auto here = static_cast<int64_t>(per_device.mesh().local_devices().size());
  const Array own = full({here}, stop ? 1 : 0, i32);
  return {make_array_from_process_local_data(per_device, own, {per_device.mesh().size()})};
}

CompiledSteps::CompiledSteps(const Task& task, const EngineOptions& options, const TrainShardings& shardings)
    : shardings_(shardings),
      recipe_(std::make_shared<const Recipe>(Recipe{task, options.optimizer, options.precision, options.ema_decay,
                                                    options.seed, options.remat, sources_, step_metrics_, eval_metrics_,
                                                    eval_counts_})),
      step_(nullptr, {}),
      run_several_(nullptr, {}),
      accumulate_(nullptr, {}),
      finish_(nullptr, {}),
      evaluate_(nullptr, {}) {
  const std::shared_ptr<const Recipe> recipe = recipe_;
  const auto updated = [recipe, shardings](const StepState& state, const AccumulatedGrads& sum,
                                           const StopVotes& votes) {
    auto [after, outputs] = recipe->updated(state, sum, votes);
    return std::pair{shardings.place(after), device_put(outputs, shardings.replicated)};
  };
  const auto step = [recipe, updated](const StepState& state, const StepBatch& batch, int64_t global_size,
                                      const StopVotes& votes) {
    const std::vector<Array> states = recipe->states_of(state.params);
    return updated(state, recipe->gradients(state, states, batch, global_size, 0), votes);
  };
  step_ = jit(StepFunction(step), {.donate = {0}});
  run_several_ =
      jit(SeveralFunction([step, shardings](const StepState& state, const StepBatch& batches, int64_t global_size) {
            const auto one = [&](const StepState& before, const Array& rows) {
              auto [after, outputs] = step(before, {batches.data, {rows}, batches.source}, global_size, {});
              return std::pair{std::move(after), std::move(outputs.stats)};
            };
            auto [after, stats] = scan(one, state, batches.rows[0]);
            return std::pair{shardings.place(after), device_put(stats, shardings.replicated)};
          }),
          {.donate = {0}});
  accumulate_ = jit(
      AccumulateFunction([recipe, shardings](const AccumulatedGrads& sum, const StepState& state,
                                             const StepBatch& batch, int64_t global_size, const Array& micro_batch) {
        AccumulatedGrads more = recipe->gradients(state, sum.states, batch, global_size, micro_batch);
        std::vector<Array> states = std::exchange(more.states, {}), largest = std::exchange(more.largest, {});
        AccumulatedGrads before = sum;
        before.states.clear();
        before.largest.clear();
        AccumulatedGrads out = tree_map([](const Array& a, const Array& b) { return a + b; }, before, more);
        out.states = std::move(states);
        for (size_t i = 0; i < largest.size(); ++i) out.largest.push_back(maximum(sum.largest[i], largest[i]));
        return shardings.place(out);
      }),
      {.donate = {0}});
  finish_ = jit(FinishFunction(updated), {.donate = {0, 1}});
  evaluate_ = jit(EvaluateFunction([recipe](const std::vector<Array>& params, const StepBatch& batch,
                                            bool predictions) { return recipe->evaluate(params, batch, predictions); }),
                  {.out_shardings = {shardings.replicated}});
}

int64_t CompiledSteps::source_number(const SourcePtr& source) const {
  const auto at = std::find(sources_->begin(), sources_->end(), source);
  const auto number = static_cast<int64_t>(at - sources_->begin());
  if (at == sources_->end()) sources_->push_back(source);
  return number;
}

AccumulatedGrads CompiledSteps::zero_sum(const StepState& state, const StepBatch& batch, int64_t global_size) const {
  const std::vector<Array> states = recipe_->states_of(state.params);
  if (!sum_) {
    const auto form = trace_call(
        "accumulate",
        [&](const StepState& s, const StepBatch& b) {
          return recipe_->gradients(s, recipe_->states_of(s.params), b, global_size, 0);
        },
        state, batch);
    sum_ = form.result;
    for_each_array(*sum_, [&](Array& leaf) {
      sum_types_.push_back(leaf.type());
      leaf = Array();
    });
  }
  std::vector<Array> zero;
  for (const Type& type : sum_types_) zero.push_back(zeros(type.shape, type.dtype));
  AccumulatedGrads sum = tree_unflatten(*sum_, zero);
  sum.states = states;
  return shardings_.place(sum);
}

}  // namespace lockstep::detail
