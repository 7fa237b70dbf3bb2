#include <gtest/gtest.h>

#include "base/throws.h"
#include "support/models.h"

namespace lockstep {
namespace {

TEST(Synthetic, HasTheShapesOfMnist) {
  const Dataset data = load_dataset("synthetic");
  EXPECT_EQ(data.train.count, 6000);
  EXPECT_EQ(data.test.count, 1000);
  EXPECT_EQ(data.train.rows, 28);
  EXPECT_EQ(data.train.cols, 28);
  EXPECT_EQ(data.train.classes, 10);
  EXPECT_EQ(data.train.images.size(), 6000u * 784);
  std::array<int, 10> seen{};
  for (uint8_t label : data.train.labels) ++seen.at(label);
  for (int n : seen) EXPECT_GT(n, 400);
}

TEST(Synthetic, SameSeedGivesTheSameImages) {
  const Dataset a = synthetic_digits(50, 10, 7), b = synthetic_digits(50, 10, 7), other = synthetic_digits(50, 10, 8);
  EXPECT_EQ(a.train.images, b.train.images);
  EXPECT_EQ(a.test.labels, b.test.labels);
  EXPECT_NE(a.train.images, other.train.images);
  EXPECT_NE(std::vector(a.train.images.begin(), a.train.images.begin() + 784),
            std::vector(a.test.images.begin(), a.test.images.begin() + 784));
  uint64_t sum = 0;
  for (uint8_t pixel : a.train.images) sum = sum * 31 + pixel;
  EXPECT_EQ(sum, 11262101184223430185u);
  // The first images do not depend on how many there are.
  const Dataset fewer = synthetic_digits(5, 1, 7);
  EXPECT_TRUE(std::equal(fewer.train.images.begin(), fewer.train.images.end(), a.train.images.begin()));
}

TEST(Synthetic, MlpLearnsItInOneEpoch) {
  const Dataset data = load_dataset("synthetic");
  auto upload = [](const ImageDataset& set) {
    return models::Batch{astype(Array::from(set.images, {set.count, 784}), f32) / 255.f,
                         Array::from(set.labels, {set.count})};
  };
  const models::Batch train = upload(data.train), test = upload(data.test);
  const auto step = jit(
      [](models::State s, models::Batch all, Array start) {
        const models::Batch batch{dynamic_slice(all.image, {start, 0}, {100, 784}),
                                  dynamic_slice(all.label, {start}, {100})};
        return models::train_step(std::move(s), batch, "adam", 1e-3f).state;
      },
      {.donate = {0}});
  models::State state = models::create_state(models::init("mlp", 0));
  for (int64_t at = 0; at < 6000; at += 100) state = step(state, train, at);
  const Array right = argmax(models::logits(state.params, test.image), 1) == astype(test.label, i32);
  EXPECT_GT(mean(right).item<double>(), 0.95);
}

TEST(Synthetic, InvalidArgumentsAreRejected) {
  EXPECT_THROWS(synthetic_digits(-1, 0), Error, "synthetic_digits: -1 training and 0 test images");
  EXPECT_THROWS(load_dataset("synthetic", {.dir = "somewhere"}), Error,
                "data: synthetic data is generated, so the folder somewhere has no effect; remove the folder setting");
  EXPECT_EQ(synthetic_digits(0, 0).train.images.size(), 0u);
}

}  // namespace
}  // namespace lockstep
