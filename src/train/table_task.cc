#include "base/check.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/tasks.h"
#include "train/classification.h"

namespace lockstep {
namespace {

void check_table(const TableTaskOptions& options) {
  if (options.means.empty() || options.means.size() != options.deviations.size())
    throw_error("table_task: {} means and {} deviations; give one of each per feature", options.means.size(),
                options.deviations.size());
  for (const float deviation : options.deviations)
    if (!(deviation > 0)) throw_error("table_task: a deviation is {}; give positive numbers", deviation);
  if (!(options.target_deviation > 0))
    throw_error("table_task: target_deviation is {}; give a positive number", options.target_deviation);
  if (options.classes < 0) throw_error("table_task: {} classes; give a positive number, or 0", options.classes);
}

struct TableNet {
  std::vector<nn::Dense> dense;
};

}  // namespace

Task table_task(const std::string& name, const TableTaskOptions& options) {
  check_table(options);
  const auto features = static_cast<int64_t>(options.means.size());
  std::vector<int64_t> sizes = {features};
  sizes.insert(sizes.end(), options.hidden.begin(), options.hidden.end());
  sizes.push_back(options.classes > 0 ? options.classes : 1);
  const auto init = [sizes](const Array& key) {
    TableNet net;
    for (size_t i = 0; i + 1 < sizes.size(); ++i)
      net.dense.push_back(nn::dense(random::fold_in(key, static_cast<int64_t>(i)), sizes[i], sizes[i + 1]));
    return net;
  };
  // Logits, or normalized numbers [n, 1].
  const auto apply = [options, features, name](const TableNet& net, const BatchArrays& batch, const nn::Mode& mode) {
    const Array means = Array::from(options.means, {features}),
                deviations = Array::from(options.deviations, {features});
    Array x = astype((detail::batch_field(batch, "features", name) - means) / deviations, mode.compute);
    for (size_t i = 0; i + 1 < net.dense.size(); ++i) x = relu(nn::apply(net.dense[i], x));
    return nn::apply(net.dense.back(), nn::dropout(mode, 0, x, options.dropout));
  };
  const auto loss = [options, name, apply](const TableNet& net, const BatchArrays& batch,
                                           const nn::Mode& mode) -> TaskResult {
    const Array out = apply(net, batch, mode);
    if (options.classes > 0)
      return detail::classification_result(out, detail::batch_field(batch, "labels", name), options.label_smoothing,
                                           mode);
    const Array target = (detail::batch_field(batch, "targets", name) - options.target_mean) / options.target_deviation;
    const Array error = reshape(astype(out, f32), {-1}) - target;
    return {.loss = square(error), .metrics = {{"abs_error", abs(error) * options.target_deviation}}};
  };
  Task task = make_task<BatchArrays>(name, init, loss);
  TableNet form;
  form.dense.resize(sizes.size() - 1);
  task.outputs = [options, form, apply](const std::vector<Array>& params, const BatchArrays& batch,
                                        const nn::Mode& mode) {
    const Array out = apply(tree_unflatten(form, params), batch, mode);
    if (options.classes > 0) return out;
    return reshape(astype(out, f32), {-1}) * options.target_deviation + options.target_mean;
  };
  return task;
}

}  // namespace lockstep
