// Images and histograms that fit() logs, against what its steps compute.
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include <numeric>

#include "lockstep/engine.h"

namespace lockstep {
namespace {

class MediaLogger final : public Logger {
 public:
  void step(int64_t, const Scalars&) override {}
  void evaluation(int64_t, const Scalars&) override {}
  void log_image(const std::string& tag, int64_t step, const LogImage& image) override {
    EXPECT_EQ(tag, "examples");
    EXPECT_EQ(step, 0);
    images.push_back(image);
  }
  void log_histogram(const std::string& tag, int64_t step, const Histogram& histogram) override {
    histograms[{step, tag}] = histogram;
  }
  bool shows_media() const override { return shows; }

  bool shows = true;
  std::vector<LogImage> images;
  std::map<std::pair<int64_t, std::string>, Histogram> histograms;
};

constexpr int64_t kSide = 9;

// Images of one class, all different.
SourcePtr images_of_one_class(int64_t n) {
  std::vector<uint8_t> pixels(static_cast<size_t>(n * kSide * kSide));
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(1 + i * i % 254);
  return array_source({{"images", Array::from(pixels, {n, kSide, kSide})}, {"labels", zeros({n}, i32)}});
}

// Logits that are linear in the pixels, from weights that are zero at first.
Model model_of_zeros() {
  return make_model(
      "linear",
      [](const Array&) {
        return zeros({kSide * kSide, 2});
      },
      [](const Array& weights, const Array& images, const nn::Mode&) {
        return matmul(reshape(images, {images.shape(0), kSide * kSide}), weights);
      });
}

// The sum of the images in a grid, without the gaps between them.
std::vector<double> sum_of_images(const LogImage& grid, int64_t side) {
  std::vector<double> out(kSide * kSide);
  EXPECT_EQ(grid.rows, side * (kSide + 2) - 2);
  EXPECT_EQ(grid.cols, side * (kSide + 2) - 2);
  for (int64_t row = 0; row < grid.rows; ++row)
    for (int64_t col = 0; col < grid.cols; ++col) {
      const uint8_t pixel = grid.pixels[static_cast<size_t>(row * grid.cols + col)];
      const int64_t y = row % (kSide + 2), x = col % (kSide + 2);
      if (y < kSide && x < kSide)
        out[static_cast<size_t>(y * kSide + x)] += pixel;
      else
        EXPECT_EQ(pixel, 0);
    }
  return out;
}

// With zero weights, the gradient of the second class is half the mean image, so the weights after a step show it.
TEST(Media, ExamplesAreTheImagesOfTheFirstStepAfterAugmentation) {
  const auto logger = std::make_shared<MediaLogger>();
  Engine engine(image_task(model_of_zeros(), {.augment = {.crop = 3, .flip = true, .cutout = 2}}),
                {.optimizer = {.kind = Optimizer::Kind::sgd, .schedule = {.peak = 1}}, .seed = 3, .loggers = {logger}});
  TrainState state = engine.create_state();
  Loader loader(images_of_one_class(32), {.batch_size = 16, .seed = 3});
  engine.fit(state, loader, {.steps = 1});
  ASSERT_EQ(logger->images.size(), 1u);
  const std::vector<double> sum = sum_of_images(logger->images[0], 4);
  const auto weights = state.params[0].to_vector<float>();
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(weights[2 * i + 1], -0.5 * sum[i] / 16 / 255, 1e-5) << i;

  engine.fit(state, loader, {.steps = 3});
  EXPECT_EQ(logger->images.size(), 1u) << "only the first step of a run is shown";
}

TEST(Media, NothingIsComputedForOtherLoggers) {
  const auto logger = std::make_shared<MediaLogger>();
  logger->shows = false;
  Engine engine(image_task(model_of_zeros()), {.loggers = {logger}, .histograms = true});
  TrainState state = engine.create_state();
  const SourcePtr images = images_of_one_class(8);
  Loader loader(images, {.batch_size = 4});
  engine.fit(state, loader, {.steps = 2, .test = images});
  EXPECT_TRUE(logger->images.empty());
  EXPECT_TRUE(logger->histograms.empty());
}

// A loss that is linear in the parameters: the gradient is the mean of the batch at every step.
struct Weights {
  Array w;
};
struct Rows {
  Array x;
};
Task linear_task(bool weighted) {
  return make_task<Rows>(
      "linear", [](const Array&) { return Weights{full({4}, 0.25)}; },
      [weighted](const Weights& weights, const Rows& batch, const nn::Mode&) -> TaskResult {
        const Array values = sum(batch.x * astype(weights.w, f32), 1);
        if (weighted) return {.loss = {values, full(values.shape(), 0.5)}};
        return {.loss = values};
      });
}

TEST(Media, HistogramsAreOfTheParametersAndTheGradientsOfTheLastBatch) {
  struct Case {
    int64_t accumulate = 1;
    bool weighted = false;
    const char* precision = "float32";
  };
  for (const Case& given : {Case{}, Case{.accumulate = 3}, Case{.weighted = true}, Case{.precision = "float16"}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", given.accumulate, given.weighted, given.precision));
    const auto logger = std::make_shared<MediaLogger>();
    Engine engine(linear_task(given.weighted),
                  {.accumulate = given.accumulate,
                   .optimizer = {.kind = Optimizer::Kind::sgd, .schedule = {.peak = 0.125}},
                   .precision = precision_of(given.precision),
                   .loggers = {logger},
                   .histograms = true});
    TrainState state = engine.create_state();
    const SourcePtr rows = array_source({{"x", reshape(arange(24), {6, 4}) / 8.0f}});
    Loader loader(rows, {.batch_size = 6, .shuffle = false});
    engine.fit(state, loader, {.steps = 2, .eval_every = 2, .test = rows});
    ASSERT_EQ(logger->histograms.size(), 2u);
    const Histogram gradients = logger->histograms.at({2, "gradients/w"});
    EXPECT_EQ(gradients.count, 4);
    EXPECT_NEAR(gradients.min, 1.25, 1e-3);  // the mean of 0, 4, .., 20, divided by 8
    EXPECT_NEAR(gradients.sum, 1.25 + 1.375 + 1.5 + 1.625, 2e-3);
    const Histogram parameters = logger->histograms.at({2, "parameters/w"});
    EXPECT_EQ(parameters.count, 4);
    const auto trained = state.params[0].to_vector<float>();
    EXPECT_LT(trained[0], 0.25);
    EXPECT_EQ(parameters.max, trained[0]);
    EXPECT_EQ(parameters.min, trained[3]);
  }
}

TEST(Media, HistogramsDoNotChangeTheRun) {
  const auto trained = [](bool histograms) {
    Engine engine(image_task(model_of_zeros(), {.augment = {.crop = 2}}),
                  {.seed = 5, .loggers = {std::make_shared<MediaLogger>()}, .histograms = histograms});
    TrainState state = engine.create_state();
    const SourcePtr images = images_of_one_class(12);
    Loader loader(images, {.batch_size = 5, .seed = 5});
    engine.fit(state, loader, {.steps = 7, .eval_every = 2, .test = images});
    return state.params[0].to_vector<float>();
  };
  EXPECT_EQ(trained(true), trained(false));
}

}  // namespace
}  // namespace lockstep
