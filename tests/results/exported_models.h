// Models with random weights, as `lockstep export` gets them.
#pragma once

#include <string>
#include <vector>

#include "export/export_model.h"
#include "lockstep/create.h"
#include "lockstep/math.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
#include "lockstep/tasks.h"
#include "train/model_info.h"

namespace lockstep {

// Random numbers in [low, high).
inline Array random_numbers(int64_t seed, const Shape& shape, double low, double high) {
  return random::uniform(random::key(seed), shape, low, high);
}

// Parameters of a task that differ from its initial ones where those are all equal, such as biases.
inline std::vector<Array> random_params(const Task& task) {
  std::vector<Array> out = task.init(random::key(7));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = out[i] + random_numbers(100 + static_cast<int64_t>(i), out[i].shape(), -0.03, 0.03);
  return out;
}

inline ExportedModel image_export(const std::string& name, const ImageShape& shape, const ModelOptions& options = {}) {
  ExportedModel out{.name = name, .step = 3, .info = image_info(shape, {}), .task = {}, .params = {}};
  out.task = image_task(find_model(name, shape, options), {.pixel_mean = 0.3, .pixel_sd = 0.4});
  out.params = random_params(out.task);
  return out;
}

inline ExportedModel table_export(int64_t classes) {
  ModelInfo info{.kind = ModelInfo::Kind::table,
                 .features = {"a", "b", "c"},
                 .means = {1, -2, 100},
                 .deviations = {0.5f, 2, 30},
                 .target = "t",
                 .target_mean = 40,
                 .target_deviation = 8,
                 .classes = classes};
  ExportedModel out{.name = "mlp", .step = 3, .info = info, .task = {}, .params = {}};
  out.task = task_of({.model = "mlp"}, info);
  out.params = random_params(out.task);
  return out;
}

inline ExportedModel language_export(GptConfig config) {
  ExportedModel out{.name = "gpt", .step = 3, .info = {.kind = ModelInfo::Kind::text}, .task = {}, .params = {}};
  out.task = language_task(config);
  out.params = random_params(out.task);
  out.context = config.context;
  return out;
}

}  // namespace lockstep
