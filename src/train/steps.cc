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

Array Steps::Recipe::pixels(const Array& images) const {
  // One multiplication and one addition instead of three operations.
  const double scale = 1 / (255 * pixel_sd), offset = -pixel_mean / pixel_sd;
  Array x = astype(images, f32) * scale;
  if (offset != 0) x = x + offset;
  return astype(x, precision.compute);
}

Array Steps::Recipe::logits(const std::vector<Array>& params, const Array& images, const nn::Mode& mode) const {
  return model.logits(cast_floating(params, precision.compute), pixels(images), mode);
}

Accumulated Steps::Recipe::gradients(const Trained& state, const BatchArrays& batch, int64_t global_size,
                                     const Array& piece) const {
  Array images = batch.images, labels = batch.labels;
  if (!batch.rows.empty()) {
    images = take(images, batch.rows[0]);
    labels = take(labels, batch.rows[0]);
  }
  const Array key = random::fold_in(random::fold_in(random::key(seed), state.optimizer.step), piece);
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

std::pair<Trained, StepOutputs> Steps::Recipe::updated(const Trained& state, const Accumulated& sum,
                                                       const Votes& votes) const {
  const std::vector<Array> grads = unscaled(state.loss_scale, sum.grads);
  std::vector<Array> squares;
  for (const Array& g : grads) squares.push_back(lockstep::sum(square(g)));
  const Array norm =
      sqrt(lockstep::sum(stack(squares)));  // computed where somebody needs it: to clip, or to scale losses
  const Array finite = isfinite(norm);
  Update next = update(optimizer, model.paths, state.params, grads, state.optimizer, norm);
  Trained after{std::move(next.params), std::move(next.state), state.loss_scale};
  if (precision.loss_scaling) {
    const auto keep = [&](const Array& fresh, const Array& old) { return where(finite, fresh, old); };
    after.params = tree_map(keep, after.params, state.params);
    after.optimizer = tree_map(keep, after.optimizer, state.optimizer);
    after.loss_scale = adjusted(precision, state.loss_scale, finite);
  }
  const DType wide = sum.loss.dtype() == f64 ? f64 : f32;
  std::vector<Array> facts;
  const Array one = 1.0f;
  for (const Array& each :
       {sum.loss, sum.correct, optimizer.schedule(state.optimizer.step), precision.loss_scaling ? finite : one,
        precision.loss_scaling ? after.loss_scale.scale[0] : one})
    facts.push_back(astype(each, wide));
  for (const Array& each : squares) facts.push_back(astype(each, wide));
  const Array nothing = zeros({}, wide);
  while (facts.size() % StepOutputs::kTogether != 0) facts.push_back(nothing);
  StepOutputs outputs{stack(facts), {}};
  for (const Array& vote : votes) outputs.stop.push_back(lockstep::sum(vote));
  return {std::move(after), std::move(outputs)};
}

namespace {

std::vector<Array> placed_each(const std::vector<Array>& arrays, const std::vector<NamedSharding>& shardings) {
  std::vector<Array> out;
  for (size_t i = 0; i < arrays.size(); ++i) out.push_back(device_put(arrays[i], shardings[i]));
  return out;
}

}  // namespace

Layout::Layout(const Mesh& mesh, const std::string& data_axis, const std::vector<ParameterSpecs>& specs)
    : whole(mesh, P()), cut(mesh, P(data_axis)), each(mesh, PartitionSpec{{SpecEntry(mesh.axis_names())}}) {
  for (const ParameterSpecs& spec : specs) {
    params.emplace_back(mesh, spec.param);
    grads.emplace_back(mesh, spec.grad);
    state.emplace_back(mesh, spec.state);
  }
}

Trained Layout::placed(const Trained& trained) const {
  return {placed_each(trained.params, params),
          {device_put(trained.optimizer.step, whole), placed_each(trained.optimizer.first, state),
           placed_each(trained.optimizer.second, state)},
          device_put(trained.loss_scale, whole)};
}

Accumulated Layout::placed(const Accumulated& sum) const {
  return {placed_each(sum.grads, grads), device_put(sum.loss, whole), device_put(sum.correct, whole)};
}

BatchArrays Layout::placed(const BatchArrays& batch, int64_t global_size) const {
  // A process has its own part of the batch, or all of it.
  const auto cut_rows = [&](const Array& own) {
    Shape shape = own.shape();
    if (shape[0] == global_size) return device_put(own, cut);
    shape[0] = global_size;
    return make_array_from_process_local_data(cut, own, shape);
  };
  if (batch.rows.empty()) return {cut_rows(batch.images), cut_rows(batch.labels), {}};
  return {device_put(batch.images, whole), device_put(batch.labels, whole), {cut_rows(batch.rows[0])}};
}

ImageArrays Layout::placed(const ImageArrays& set) const { return device_put(set, whole); }

Votes Layout::votes(bool stop) const {
  if (process_count() == 1) return {};
  const auto here = static_cast<int64_t>(each.mesh().local_devices().size());
  const Array own = full({here}, stop ? 1 : 0, i32);
  return {make_array_from_process_local_data(each, own, {each.mesh().size()})};
}

Steps::Steps(const Model& model, const EngineOptions& options, const Layout& layout)
    : types_(model.types),
      layout_(layout),
      step_(nullptr, {}),
      several_(nullptr, {}),
      accumulate_(nullptr, {}),
      finish_(nullptr, {}),
      evaluate_(nullptr, {}) {
  const Recipe recipe{
      model,       options.optimizer, options.precision, options.label_smoothing, options.pixel_mean, options.pixel_sd,
      options.seed};
  const auto updated = [recipe, layout](const Trained& state, const Accumulated& sum, const Votes& votes) {
    auto [after, outputs] = recipe.updated(state, sum, votes);
    return std::pair{layout.placed(after), device_put(outputs, layout.whole)};
  };
  const auto step = [recipe, updated](const Trained& state, const BatchArrays& batch, int64_t global_size,
                                      const Votes& votes) {
    return updated(state, recipe.gradients(state, batch, global_size, 0), votes);
  };
  step_ = jit(StepFunction(step), {.donate = {0}});
  several_ = jit(SeveralFunction([step, layout](const Trained& state, const BatchArrays& batches, int64_t global_size) {
                   const auto one = [&](const Trained& before, const Array& rows) {
                     auto [after, outputs] = step(before, {batches.images, batches.labels, {rows}}, global_size, {});
                     return std::pair{std::move(after), std::move(outputs.facts)};
                   };
                   auto [after, facts] = scan(one, state, batches.rows[0]);
                   return std::pair{layout.placed(after), device_put(facts, layout.whole)};
                 }),
                 {.donate = {0}});
  accumulate_ =
      jit(AccumulateFunction([recipe, layout](const Accumulated& sum, const Trained& state, const BatchArrays& batch,
                                              int64_t global_size, const Array& piece) {
            const Accumulated more = recipe.gradients(state, batch, global_size, piece);
            return layout.placed(tree_map([](const Array& a, const Array& b) { return a + b; }, sum, more));
          }),
          {.donate = {0}});
  finish_ = jit(FinishFunction(updated), {.donate = {0, 1}});
  evaluate_ =
      jit(EvaluateFunction([recipe](const std::vector<Array>& params, const ImageArrays& set, const Array& rows) {
            const Array images = take(set.images, rows), labels = take(set.labels, rows);
            const Array out = recipe.logits(params, images, {});
            const Array right = astype(is_correct(out, labels), i32);
            const Array answers = astype(one_hot(argmax(out, -1), out.shape(-1)), i32);
            return EvalSums{sum(softmax_cross_entropy(out, labels)), sum(right), sum(answers, 0),
                            sum(answers * expand_dims(right, 1), 0)};
          }),
          {.out_shardings = {layout.whole}});
}

Accumulated Steps::empty_sum() const {
  Accumulated sum{{}, zeros({}), zeros({}, i32)};
  for (const Type& type : types_) sum.grads.push_back(zeros(type.shape, type.dtype));
  return layout_.placed(sum);
}

}  // namespace lockstep::detail
