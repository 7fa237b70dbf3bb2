#include "train/steps.h"

#include "lockstep/control.h"
#include "lockstep/create.h"
#include "lockstep/device_put.h"
#include "lockstep/grad.h"
#include "lockstep/indexing.h"
#include "lockstep/losses.h"
#include "lockstep/math.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"

namespace lockstep::detail {

Array CompiledSteps::Recipe::pixels(const Array& images) const {
  // One multiplication and one addition instead of three operations.
  const double scale = 1 / (255 * pixel_sd), offset = -pixel_mean / pixel_sd;
  Array x = astype(images, f32) * scale;
  if (offset != 0) x = x + offset;
  return astype(x, precision.compute);
}

Array CompiledSteps::Recipe::logits(const std::vector<Array>& params, const Array& images, const nn::Mode& mode) const {
  return model.logits(cast_floating(params, precision.compute), pixels(images), mode);
}

AccumulatedGrads CompiledSteps::Recipe::gradients(const StepState& state, const BatchArrays& batch, int64_t global_size,
                                                  const Array& micro_batch) const {
  Array images = batch.images, labels = batch.labels;
  if (!batch.rows.empty()) {
    images = take(images, batch.rows[0]);
    labels = take(labels, batch.rows[0]);
  }
  const Array key = random::fold_in(random::fold_in(random::key(seed), state.optimizer.step), micro_batch);
  const nn::Mode mode{.training = true, .key = key};
  const auto loss = [&](const std::vector<Array>& params) {
    const Array out = logits(params, images, mode);
    const Array mean = sum(softmax_cross_entropy(out, labels, {.label_smoothing = label_smoothing})) /
                       static_cast<double>(global_size);
    return std::pair{scaled(state.loss_scale, mean), std::pair{mean, is_correct(out, labels)}};
  };
  auto [value, grads] = value_and_grad(loss)(state.params);
  return {std::move(grads), value.second.first, sum(astype(value.second.second, i32))};
}

std::pair<StepState, StepOutputs> CompiledSteps::Recipe::updated(const StepState& state, const AccumulatedGrads& sum,
                                                                 const StopVotes& votes) const {
  const std::vector<Array> grads = unscaled(state.loss_scale, sum.grads);
  std::vector<Array> squares;
  for (const Array& g : grads) squares.push_back(lockstep::sum(square(g)));
  const Array norm = sqrt(lockstep::sum(stack(squares)));  // unused, and so not computed, without clipping or scaling
  const Array finite = isfinite(norm);
  Update next = update(optimizer, model.paths, state.params, grads, state.optimizer, norm);
  StepState after{std::move(next.params), std::move(next.state), state.loss_scale};
  if (precision.loss_scaling) {
    const auto keep = [&](const Array& fresh, const Array& old) { return where(finite, fresh, old); };
    after.params = tree_map(keep, after.params, state.params);
    after.optimizer = tree_map(keep, after.optimizer, state.optimizer);
    after.loss_scale = adjusted(precision, state.loss_scale, finite);
  }
  const DType wide = sum.loss.dtype() == f64 ? f64 : f32;
  std::vector<Array> stats;
  const Array one = 1.0f;
  for (const Array& each :
       {sum.loss, sum.correct, optimizer.schedule(state.optimizer.step), precision.loss_scaling ? finite : one,
        precision.loss_scaling ? after.loss_scale.scale[0] : one})
    stats.push_back(astype(each, wide));
  for (const Array& each : squares) stats.push_back(astype(each, wide));
  const Array padding = zeros({}, wide);
  while (stats.size() % StepOutputs::kStatsAlignment != 0) stats.push_back(padding);
  StepOutputs outputs{stack(stats), {}};
  for (const Array& vote : votes) outputs.stop.push_back(lockstep::sum(vote));
  return {std::move(after), std::move(outputs)};
}

namespace {

std::vector<Array> place_each(const std::vector<Array>& arrays, const std::vector<NamedSharding>& shardings) {
  std::vector<Array> out;
  for (size_t i = 0; i < arrays.size(); ++i) out.push_back(device_put(arrays[i], shardings[i]));
  return out;
}

}  // namespace

TrainShardings::TrainShardings(const Mesh& mesh, const std::string& data_axis, const std::vector<ParameterSpecs>& specs)
    : replicated(mesh, P()),
      examples(mesh, P(data_axis)),
      per_device(mesh, PartitionSpec{{SpecEntry(mesh.axis_names())}}) {
  for (const ParameterSpecs& spec : specs) {
    params.emplace_back(mesh, spec.param);
    grads.emplace_back(mesh, spec.grad);
    state.emplace_back(mesh, spec.state);
  }
}

StepState TrainShardings::place(const StepState& trained) const {
  return {place_each(trained.params, params),
          {device_put(trained.optimizer.step, replicated), place_each(trained.optimizer.first, state),
           place_each(trained.optimizer.second, state)},
          device_put(trained.loss_scale, replicated)};
}

AccumulatedGrads TrainShardings::place(const AccumulatedGrads& sum) const {
  return {place_each(sum.grads, grads), device_put(sum.loss, replicated), device_put(sum.correct, replicated)};
}

BatchArrays TrainShardings::place(const BatchArrays& batch, int64_t global_size) const {
  // `own` is this process's part of the batch, or the complete batch.
  const auto shard_rows = [&](const Array& own) {
    Shape shape = own.shape();
    if (shape[0] == global_size) return device_put(own, examples);
    shape[0] = global_size;
    return make_array_from_process_local_data(examples, own, shape);
  };
  if (batch.rows.empty()) return {shard_rows(batch.images), shard_rows(batch.labels), {}};
  return {device_put(batch.images, replicated), device_put(batch.labels, replicated), {shard_rows(batch.rows[0])}};
}

ImageArrays TrainShardings::place(const ImageArrays& set) const { return device_put(set, replicated); }

StopVotes TrainShardings::votes(bool stop) const {
  if (process_count() == 1) return {};
  const auto here = static_cast<int64_t>(per_device.mesh().local_devices().size());
  const Array own = full({here}, stop ? 1 : 0, i32);
  return {make_array_from_process_local_data(per_device, own, {per_device.mesh().size()})};
}

CompiledSteps::CompiledSteps(const Model& model, const EngineOptions& options, const TrainShardings& shardings)
    : types_(model.types),
      shardings_(shardings),
      step_(nullptr, {}),
      run_several_(nullptr, {}),
      accumulate_(nullptr, {}),
      finish_(nullptr, {}),
      evaluate_(nullptr, {}) {
  const Recipe recipe{
      model,       options.optimizer, options.precision, options.label_smoothing, options.pixel_mean, options.pixel_sd,
      options.seed};
  const auto updated = [recipe, shardings](const StepState& state, const AccumulatedGrads& sum,
                                           const StopVotes& votes) {
    auto [after, outputs] = recipe.updated(state, sum, votes);
    return std::pair{shardings.place(after), device_put(outputs, shardings.replicated)};
  };
  const auto step = [recipe, updated](const StepState& state, const BatchArrays& batch, int64_t global_size,
                                      const StopVotes& votes) {
    return updated(state, recipe.gradients(state, batch, global_size, 0), votes);
  };
  step_ = jit(StepFunction(step), {.donate = {0}});
  run_several_ =
      jit(SeveralFunction([step, shardings](const StepState& state, const BatchArrays& batches, int64_t global_size) {
            const auto one = [&](const StepState& before, const Array& rows) {
              auto [after, outputs] = step(before, {batches.images, batches.labels, {rows}}, global_size, {});
              return std::pair{std::move(after), std::move(outputs.stats)};
            };
            auto [after, stats] = scan(one, state, batches.rows[0]);
            return std::pair{shardings.place(after), device_put(stats, shardings.replicated)};
          }),
          {.donate = {0}});
  accumulate_ = jit(
      AccumulateFunction([recipe, shardings](const AccumulatedGrads& sum, const StepState& state,
                                             const BatchArrays& batch, int64_t global_size, const Array& micro_batch) {
        const AccumulatedGrads more = recipe.gradients(state, batch, global_size, micro_batch);
        return shardings.place(tree_map([](const Array& a, const Array& b) { return a + b; }, sum, more));
      }),
      {.donate = {0}});
  finish_ = jit(FinishFunction(updated), {.donate = {0, 1}});
  evaluate_ =
      jit(EvaluateFunction([recipe](const std::vector<Array>& params, const ImageArrays& set, const Array& rows) {
            const Array images = take(set.images, rows), labels = take(set.labels, rows);
            const Array out = recipe.logits(params, images, {});
            const Array correct = astype(is_correct(out, labels), i32);
            const Array predictions = astype(one_hot(argmax(out, -1), out.shape(-1)), i32);
            return EvalSums{sum(softmax_cross_entropy(out, labels)), sum(correct), sum(predictions, 0),
                            sum(predictions * expand_dims(correct, 1), 0)};
          }),
          {.out_shardings = {shardings.replicated}});
}

AccumulatedGrads CompiledSteps::zero_sum() const {
  AccumulatedGrads sum{{}, zeros({}), zeros({}, i32)};
  for (const Type& type : types_) sum.grads.push_back(zeros(type.shape, type.dtype));
  return shardings_.place(sum);
}

}  // namespace lockstep::detail
