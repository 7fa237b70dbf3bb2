// Replays the first steps and one epoch of the reference runs on MNIST and compares losses, gradient norms and
// accuracy.
#include "support/golden.h"

namespace lockstep {
namespace {

class Golden : public testing::TestWithParam<int> {};

TEST_P(Golden, LossesNormsAndAccuracyMatchTheReference) {
  if (!golden::mnist()) GTEST_SKIP() << "MNIST is not available on this machine and cannot be downloaded";
  const golden::Case c = golden::read(GetParam());
  SCOPED_TRACE(c.model + " " + c.optimizer);
  const auto step = jit(
      [optimizer = c.optimizer, rate = c.rate](models::State s, models::Batch b) {
        return models::train_step(std::move(s), std::move(b), optimizer, rate);
      },
      {.donate = {0}});
  const size_t steps = c.steps_in_epoch ? c.steps_in_epoch : c.losses.size();
  const models::State state = golden::replay(c, golden::upload(golden::mnist()->train), steps, step);
  if (!c.steps_in_epoch || brief(false, true)) return;
  EXPECT_NEAR(golden::accuracy(state.params, golden::upload(golden::mnist()->test)), c.accuracy, 0.003);
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, testing::Range(0, golden::kCases));

}  // namespace
}  // namespace lockstep
