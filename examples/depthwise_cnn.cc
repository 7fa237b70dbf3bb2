// A small network of depthwise separable convolutions, as in MobileNet: each block convolves every channel by itself,
// then mixes the channels of each pixel. It learns the direction of stripes in noisy images.
#include <lockstep/initializers.h>
#include <lockstep/lockstep.h>
#include <lockstep/losses.h>
#include <lockstep/nn.h>
#include <lockstep/optimizers.h>

#include <cstdio>

using namespace lockstep;

struct Block {
  Array each;  // [3, 3, 1, in]: a filter for each channel
  Array mix;   // [1, 1, in, out]
  Array bias;  // [out]
};

struct Net {
  Array stem;  // [3, 3, 1, 16]
  std::vector<Block> blocks;
  nn::Dense out;
};

Block block(const Array& key, int64_t in, int64_t out) {
  const auto [a, b] = random::split<2>(key);
  return {0.3f * random::normal(a, {3, 3, 1, in}), initializers::he_normal(b, {1, 1, in, out}), zeros({out})};
}

Net create(const Array& key) {
  const auto [stem, first, second, out] = random::split<4>(key);
  return {initializers::he_normal(stem, {3, 3, 1, 16}), {block(first, 16, 32), block(second, 32, 32)},
          nn::dense(out, 32, 4)};
}

Array logits(const Net& net, const Array& images) {
  Array x = relu(conv2d(images, net.stem, {.stride = 2}));
  for (const Block& b : net.blocks) x = relu(conv2d(depthwise_conv(x, b.each), b.mix) + b.bias);
  return nn::apply(net.out, mean(x, {1, 2}));
}

// Stripes in one of four directions, with a random phase, and noise.
std::pair<Array, Array> batch_of(const Array& key, int64_t n) {
  const auto [turn, place, noise] = random::split<3>(key);
  const Array labels = random::randint(turn, {n}, 0, 4);
  const Array angle = reshape(astype(labels, f32) * 0.7853982f, {n, 1, 1});
  const Array phase = random::uniform(place, {n, 1, 1}, 0, 6.28f);
  const Array h = reshape(arange(16, f32), {1, 16, 1}), w = reshape(arange(16, f32), {1, 1, 16});
  const Array stripes = sin(1.5f * (h * sin(angle) + w * cos(angle)) + phase);
  return {expand_dims(stripes + 0.5f * random::normal(noise, {n, 16, 16}), 3), labels};
}

int main() {
  const Optimizer adam{.schedule = {.peak = 1e-2}};
  const auto step = jit(
      [&](Net net, OptimizerState state, Array key) {
        const auto [images, labels] = batch_of(random::fold_in(key, state.step), 64);
        auto [loss, grads] =
            value_and_grad([&](Net n) { return mean(softmax_cross_entropy(logits(n, images), labels)); })(net);
        auto [next, next_state] = update(adam, net, grads, state);
        return std::tuple{next, next_state, loss};
      },
      {.donate = {0, 1}});

  Net net = create(random::key(0));
  OptimizerState state = create_state(adam, net);
  Array loss;
  for (int i = 0; i < 100; ++i) {
    std::tie(net, state, loss) = step(net, state, random::key(1));
    if (i % 20 == 0) std::printf("step %3d loss %.3f\n", i, loss.item<float>());
  }
  const auto [images, labels] = batch_of(random::key(2), 256);
  std::printf("accuracy %.3f\n", mean(astype(is_correct(logits(net, images), labels), f32)).item<float>());
}
