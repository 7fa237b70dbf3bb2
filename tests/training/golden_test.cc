// Replays the first steps and one epoch of the reference runs on MNIST and compares losses, gradient norms and
// accuracy.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/models.h"

namespace lockstep {
namespace {

using models::Batch;

const Dataset* mnist() {
  static const Dataset* data = []() -> const Dataset* {
    try {
      return new Dataset(load_dataset("mnist"));
    } catch (const IoError& e) {
      std::fprintf(stderr, "%s\n", e.what());
      return nullptr;
    }
  }();
  return data;
}

struct Resident {
  Array images, labels;
};

Resident upload(const ImageDataset& set) {
  return {Array::from(set.images, {set.count, 784}), Array::from(set.labels, {set.count})};
}

Batch rows(const Resident& set, const Array& start, int64_t n) {
  return {astype(dynamic_slice(set.images, {start, 0}, {n, 784}), f32) / 255.f,
          dynamic_slice(set.labels, {start}, {n})};
}

class Golden : public testing::TestWithParam<int> {};

TEST_P(Golden, LossesNormsAndAccuracyMatchTheReference) {
  if (!mnist()) GTEST_SKIP() << "MNIST is not on this machine and no source can be reached";
  std::ifstream file(LOCKSTEP_TEST_DATA "/training.json");
  const auto golden = nlohmann::json::parse(file)["cases"][static_cast<size_t>(GetParam())];
  const std::string model = golden["model"], optimizer = golden["optimizer"];
  const float rate = golden["learning_rate"];
  const int64_t size = golden["batch_size"];
  const std::vector<double> losses = golden["losses"], norms = golden["grad_norms"];
  SCOPED_TRACE(model + " " + optimizer);

  const Resident train = upload(mnist()->train), test = upload(mnist()->test);
  const auto step = jit(
      [rate, optimizer, size](models::State s, Resident set, Array start) {
        return models::train_step(std::move(s), rows(set, start, size), optimizer, rate);
      },
      {.donate = {0}});
  models::State state = models::create_state(models::init(model, golden["seed"]));
  const bool whole_epoch = golden.contains("steps_in_epoch");
  const auto steps = whole_epoch ? golden["steps_in_epoch"].get<size_t>() : losses.size();
  for (size_t i = 0; i < steps; ++i) {
    auto [next, loss, norm] = step(state, train, static_cast<int64_t>(i) * size);
    state = std::move(next);
    if (i >= losses.size()) continue;
    const double tolerance = i < 5 ? 2e-5 : 1e-3;
    EXPECT_NEAR(loss.item<double>() / losses[i], 1.0, tolerance) << "step " << i;
    EXPECT_NEAR(norm.item<double>() / norms[i], 1.0, 10 * tolerance) << "step " << i;
  }
  if (!whole_epoch) return;
  const auto correct = jit([](models::Params p, Resident set, Array start) {
    const Batch b = rows(set, start, 1000);
    return sum(argmax(models::logits(p, b.image), 1) == astype(b.label, i32));
  });
  int64_t right = 0;
  for (int64_t at = 0; at < 10000; at += 1000) right += correct(state.params, test, at).item<int64_t>();
  EXPECT_NEAR(static_cast<double>(right) / 10000, golden["test_accuracy_after_one_epoch"].get<double>(), 0.003);
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, testing::Range(0, 4));

}  // namespace
}  // namespace lockstep
