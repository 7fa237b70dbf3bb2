// A variational autoencoder: learns a two-dimensional code of small pictures, and draws new ones from random codes.
#include <lockstep/lockstep.h>
#include <lockstep/nn.h>
#include <lockstep/optimizers.h>

#include <cstdio>

using namespace lockstep;

constexpr int64_t kSide = 8, kPixels = kSide * kSide, kCode = 2, kBatch = 128;

struct Net {
  nn::Linear encode, mean, log_variance, expand, decode;
};

Net init(const Array& key) {
  const auto k = unstack(random::split(key, 5));
  return {nn::linear(k[0], kPixels, 128), nn::linear(k[1], 128, kCode), nn::linear(k[2], 128, kCode),
          nn::linear(k[3], kCode, 128), nn::linear(k[4], 128, kPixels)};
}

// A blurred spot at a random place: two numbers describe each picture.
Array pictures(const Array& key) {
  const Array center = random::uniform(key, {kBatch, 2, 1}, 1.f, kSide - 2.f), grid = arange(kSide);
  const Array profile = exp(-square(grid - center) / 2);  // (batch, 2, side)
  return reshape(einsum("by,bx->byx", at(profile, 0, 1), at(profile, 1, 1)), {kBatch, kPixels});
}

Array draw(const Net& net, const Array& code) { return nn::apply(net.decode, relu(nn::apply(net.expand, code))); }

// The negative evidence lower bound of each picture: reconstruction error, and divergence of the code from a normal one.
Array loss(const Net& net, const Array& x, const Array& key) {
  const Array hidden = relu(nn::apply(net.encode, x));
  const Array mu = nn::apply(net.mean, hidden), log_variance = nn::apply(net.log_variance, hidden);
  const Array logits = draw(net, mu + exp(log_variance / 2) * random::normal(key, mu.shape()));
  const Array error = sum(softplus(logits) - x * logits, 1);  // binary cross-entropy
  return mean(error + sum(exp(log_variance) + square(mu) - 1 - log_variance, 1) / 2);
}

int main() {
  Net net = init(random::key(0));
  const Optimizer adam{.schedule = {.peak = 2e-3}};
  OptimizerState state = create_state(adam, net);
  const auto step = jit([adam](Net w, OptimizerState s, Array key) {
    const auto [spots, noise] = random::split<2>(key);
    const auto [value, g] = value_and_grad(loss)(w, pictures(spots), noise);
    auto [next, moments] = update(adam, w, g, s);
    return std::tuple{next, moments, value};
  }, {.donate = {0, 1}});

  for (int i = 0; i <= 1500; ++i) {
    auto [next, moments, value] = step(std::move(net), std::move(state), random::fold_in(random::key(1), i));
    net = std::move(next), state = std::move(moments);
    if (i % 500 == 0) std::printf("step %d: loss %.3f\n", i, value.item<float>());
  }
  const auto picture = sigmoid(draw(net, random::normal(random::key(2), {1, kCode}))).to_vector<float>();
  for (int64_t p = 0; p < kPixels; ++p)
    std::printf("%c%s", " .:*#"[static_cast<int>(picture[static_cast<size_t>(p)] * 4.99f)], p % kSide == kSide - 1 ? "\n" : "");
}
