// Engine::step: the metrics it returns, and the batches it rejects.
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include "base/throws.h"
#include "lockstep/engine.h"
#include "train/eight_devices.h"

namespace lockstep {
namespace {

// One dense layer with parameters of this type.
Model linear_model(DType dtype) {
  return make_model(
      "linear",
      [dtype](const Array& key) {
        return tree_map([dtype](const Array& a) { return astype(a, dtype); }, nn::dense(key, 784, 10));
      },
      [](const nn::Dense& layer, const Array& x, const nn::Mode&) { return nn::apply(layer, nn::flatten(x)); });
}

// The loss of a batch that is the complete set, before the update and as evaluate() computes it.
TEST(EngineStep, MetricsHaveThePrecisionOfTheLoss) {
  for (const int64_t accumulate : {1, 3}) {
    const ImageDataset set = synthetic_digits(48, 1, 1).train;
    Engine engine(linear_model(f64), {.accumulate = accumulate, .precision = {.compute = f64}, .seed = 5});
    TrainState state = engine.create_state();
    const EvalResult before = engine.evaluate(state, image_source(set));
    Loader loader(set, {.batch_size = 48});
    const StepMetrics metrics = engine.step(state, loader, loader.next());
    EXPECT_NEAR(metrics.loss, before.loss, 1e-12) << accumulate << " micro-batches";
    ASSERT_EQ(metrics.metrics.size(), 1u);
    EXPECT_EQ(metrics.metrics[0].first, "accuracy");
    EXPECT_EQ(metrics.metrics[0].second, before.metric("accuracy")) << accumulate << " micro-batches";
  }
}

TEST(EngineStep, PartsOfBatchesAreRejectedInASingleProcess) {
  Engine engine(linear_model(f32), {.seed = 5});
  TrainState state = engine.create_state();
  Loader loader(synthetic_digits(40, 1, 1).train, {.batch_size = 16, .process_index = 1, .process_count = 2});
  EXPECT_THROWS(engine.step(state, loader, loader.next()), Error,
                "step: this is the only process, but it has 8 of the 16 examples of a batch; give it complete batches");
  EXPECT_EQ(state.step, 0);
}

}  // namespace
}  // namespace lockstep
