// Replays the first steps of the reference runs with the layers, losses and optimizers of lockstep/nn.h and related
// headers.
#include "lockstep/losses.h"
#include "lockstep/models.h"
#include "lockstep/optimizers.h"
#include "support/golden.h"

namespace lockstep {
namespace {

class GoldenNn : public testing::TestWithParam<int> {};

TEST_P(GoldenNn, LossesAndNormsMatchTheReference) {
  if (!golden::mnist()) GTEST_SKIP() << "MNIST is not available on this machine and cannot be downloaded";
  const golden::Case c = golden::read(GetParam());
  SCOPED_TRACE(c.model + " " + c.optimizer);
  // The reference's mlp1024 uses relu, find_model's uses tanh.
  const bool found = c.model != "mlp1024";
  const Model model = found ? find_model(c.model) : Model();
  const auto logits = [&](const models::Params& p, const Array& x) {
    if (found) return model.logits(tree_leaves(p), reshape(x, {-1, 28, 28}), {});
    Array h = x;
    for (size_t i = 0; i < p.size(); ++i) {
      h = nn::apply(nn::Dense{p[i].w, p[i].b}, h);
      if (i + 1 < p.size()) h = relu(h);
    }
    return h;
  };
  const Optimizer optimizer{.kind = optimizer_kind(c.optimizer), .schedule = {.peak = c.rate}};
  // The optimizer state in the form that golden::replay expects.
  const auto moments = [](const models::Params& p, bool used) { return used ? tree_leaves(p) : std::vector<Array>(); };
  const bool first = optimizer.kind != Optimizer::Kind::sgd, second = optimizer.kind == Optimizer::Kind::adam;
  const auto step = jit(
      [&](models::State s, models::Batch b) {
        auto [loss, grads] = value_and_grad(
            [&](models::Params p) { return mean(softmax_cross_entropy(logits(p, b.image), b.label)); })(s.params);
        const OptimizerState state{astype(s.step, i32), moments(s.m, first), moments(s.v, second)};
        const Array norm = global_norm(tree_leaves(grads));
        auto [params, next] = update(optimizer, s.params, grads, state);
        if (first) s.m = tree_unflatten(s.m, next.first);
        if (second) s.v = tree_unflatten(s.v, next.second);
        return models::Result{{params, s.m, s.v, astype(next.step, f32)}, loss, norm};
      },
      {.donate = {0}});
  golden::replay(c, golden::upload(golden::mnist()->train), c.losses.size(), step);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenNn, testing::Range(0, golden::kCases));

}  // namespace
}  // namespace lockstep
