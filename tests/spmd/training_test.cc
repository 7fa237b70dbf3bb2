// Replays the reference training runs on 8 devices by jit with shardings, and on 1 and 8 by shard_map: losses
// and norms must match.
#include "support/golden.h"

namespace lockstep {
namespace {

class GoldenSpmd : public testing::TestWithParam<int> {
 protected:
  void replay(int64_t devices, bool per_device) {
    if (!golden::mnist()) GTEST_SKIP() << "MNIST is not on this machine and no source can be reached";
    const golden::Case c = golden::read(GetParam());
    SCOPED_TRACE(c.model + " " + c.optimizer);
    const Mesh mesh = make_mesh({{"data", devices}});
    const NamedSharding rows(mesh, P("data"));
    const golden::Images train = golden::upload(golden::mnist()->train);
    if (per_device) {
      // The mean over all devices is part of the differentiated function, so its gradient is that of the
      // global mean.
      auto mean_loss = [](const models::Params& p, const models::Batch& b) {
        return pmean(models::loss(p, b), "data");
      };
      auto body = [optimizer = c.optimizer, rate = c.rate, mean_loss](models::State s, models::Batch b) {
        return models::train_step(std::move(s), std::move(b), optimizer, rate, mean_loss);
      };
      const auto step =
          jit(shard_map(body, {.mesh = mesh, .in_specs = {P(), P("data")}, .out_specs = {P()}}), {.donate = {0}});
      golden::replay(c, train, c.losses.size(),
                     [&](const models::State& s, const models::Batch& b) { return step(s, b); });
    } else {
      const auto step = jit(
          [optimizer = c.optimizer, rate = c.rate](models::State s, models::Batch b) {
            return models::train_step(std::move(s), std::move(b), optimizer, rate);
          },
          {.donate = {0}, .in_shardings = {NamedSharding(mesh, P()), rows}});
      const models::State last =
          golden::replay(c, train, c.losses.size(),
                         [&](const models::State& s, const models::Batch& b) { return step(s, device_put(b, rows)); });
      for (const Array& a : tree_leaves(last.params)) EXPECT_TRUE(a.is_fully_replicated());
    }
  }
};

TEST_P(GoldenSpmd, JitOnEightDevices) { replay(8, false); }
TEST_P(GoldenSpmd, ShardMapOnEightDevices) { replay(8, true); }
TEST_P(GoldenSpmd, ShardMapOnOneDevice) { replay(1, true); }

INSTANTIATE_TEST_SUITE_P(Cases, GoldenSpmd, testing::Range(0, golden::kCases));

}  // namespace
}  // namespace lockstep
