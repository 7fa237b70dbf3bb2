#include <cmath>

#include "base/check.h"
#include "lockstep/losses.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/tasks.h"
#include "train/gpt_settings.h"

namespace lockstep {
namespace {

void add_text_metrics(Scalars& means, double bytes_per_token) {
  double loss = 0;
  for (const auto& [name, value] : means)
    if (name == "loss") loss = value;
  means.emplace_back("perplexity", std::exp(loss));
  if (bytes_per_token > 0) means.emplace_back("bits_per_byte", loss / std::log(2.0) / bytes_per_token);
}

}  // namespace

Task language_task(const GptConfig& config, const LanguageTaskOptions& options) {
  check(config);
  if (!(options.bytes_per_token >= 0))
    throw_error("language_task: bytes_per_token is {}; give a positive number, or 0 if it is not known",
                options.bytes_per_token);
  struct Tokens {
    Array inputs, targets;
  };
  Task task = make_task<Tokens>(
      "gpt", [config](const Array& key) { return create_gpt(config, key); },
      [config](const Gpt& gpt, const Tokens& batch, const nn::Mode& mode) -> TaskResult {
        const Array logits = apply(config, gpt, batch.inputs, mode);
        // Training windows are complete. The last one of an evaluation may not be: its missing targets are -1.
        if (mode.training) return {.loss = softmax_cross_entropy(logits, batch.targets)};
        const Array known = batch.targets >= 0;
        return {.loss = {softmax_cross_entropy(logits, where(known, batch.targets, 0)), astype(known, f32)}};
      });
  task.outputs = [config, form = gpt_form(config)](const std::vector<Array>& params, const BatchArrays& batch,
                                                   const nn::Mode& mode) {
    return apply(config, tree_unflatten(form, params), detail::batch_field(batch, "inputs", "gpt"), mode);
  };
  task.derive = [bytes = options.bytes_per_token](Scalars& means) { add_text_metrics(means, bytes); };
  task.unit = "tokens";
  task.units_per_example = config.context;
  return task;
}

}  // namespace lockstep
