// What TensorBoard shows besides scalars: example images, and histograms of parameters and gradients.
#include <algorithm>
#include <cmath>

#include "lockstep/distributed.h"
#include "lockstep/jit.h"
#include "lockstep/rearrange.h"
#include "train/engine_impl.h"
#include "train/state.h"

namespace lockstep {
namespace {

constexpr int64_t kExamples = 16;  // images in a grid
constexpr int64_t kGap = 2;        // pixels between them

bool show_media(const Loggers& loggers) {
  return std::any_of(loggers.begin(), loggers.end(), [](const auto& logger) { return logger->shows_media(); });
}

// Images, u8 [n, rows, cols, channels], in a grid with as many rows as columns.
LogImage grid_of(const Array& images) {
  const int64_t n = images.shape(0), rows = images.shape(1), cols = images.shape(2), channels = images.shape(3);
  const auto side = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
  const int64_t down = (n + side - 1) / side;
  LogImage out{.rows = down * (rows + kGap) - kGap, .cols = side * (cols + kGap) - kGap, .channels = channels};
  out.pixels.resize(static_cast<size_t>(out.rows * out.cols * channels));
  const auto pixels = images.to_vector<uint8_t>();
  for (int64_t i = 0; i < n; ++i)
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t to_row = i / side * (rows + kGap) + row, to_col = i % side * (cols + kGap);
      std::copy_n(pixels.begin() + (i * rows + row) * cols * channels, cols * channels,
                  out.pixels.begin() + (to_row * out.cols + to_col) * channels);
    }
  return out;
}

// The first rows of an array.
Array first_rows(const Array& array, int64_t n) {
  Shape limits = array.shape();
  limits[0] = std::min(n, limits[0]);
  return slice(array, Shape(limits.size(), 0), limits);
}

}  // namespace

void Engine::Impl::log_examples(const Loader& loader, const LoaderBatch& batch) const {
  if (!task.images || !show_media(options.loggers) || batch.size == 0) return;
  const BatchArrays fields =
      loader.resident() ? loader.source()->gather(loader.source()->resident(), first_rows(batch.rows, kExamples))
                        : tree_map([](const Array& field) { return first_rows(field, kExamples); }, batch.fields);
  Array images = task.images(fields, {.training = true, .key = detail::step_key(options.seed, Array(0), Array(0))});
  if (images.rank() == 3) images = reshape(images, {images.shape(0), images.shape(1), images.shape(2), 1});
  if (images.rank() != 4 || (images.shape(3) != 1 && images.shape(3) != 3)) return;
  const LogImage grid = grid_of(images);
  for (const auto& logger : options.loggers) logger->log_image("examples", 0, grid);
}

void Engine::Impl::log_histograms(const TrainState& state, const Loader& loader, const LoaderBatch& batch) const {
  const bool shows = show_media(options.loggers);
  const auto gather = jit([](const Array& x) { return x; }, {.out_shardings = {shardings.replicated}});
  const auto log = [&](const std::string& tag, const Array& array, float factor) {
    // Every process takes part in assembling an array that is sharded over processes.
    const Array whole = process_count() > 1 && !array.is_fully_replicated() ? gather(array) : array;
    if (!shows) return;
    auto values = whole.to_vector<float>();
    if (factor != 1)
      for (float& value : values) value *= factor;
    const Histogram histogram = make_histogram(values);
    for (const auto& logger : options.loggers) logger->log_histogram(tag, state.step, histogram);
  };
  for (size_t i = 0; i < state.params.size(); ++i)
    if (is_floating(state.params[i].dtype())) log("parameters/" + task.paths[i], state.params[i], 1);
  const detail::AccumulatedGrads sum = accumulate(detail::arrays_of(state), loader, batch);
  // The sums are multiplied by the loss scale and, if the loss is weighted, by the mean weight.
  float factor = 1;
  if (!state.loss_scale.scale.empty()) factor /= state.loss_scale.scale[0].item<float>();
  for (const Array& weight : sum.weight)
    if (const auto value = weight.item<float>(); value > 0) factor /= value;
  const std::vector<std::string> paths = detail::trained_of(task, task.paths);
  for (size_t i = 0; i < paths.size(); ++i) log("gradients/" + paths[i], sum.grads[i], factor);
}

}  // namespace lockstep
