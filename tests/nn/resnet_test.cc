#include "lockstep/resnet.h"

#include <cmath>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "lockstep/losses.h"
#include "lockstep/optimizers.h"
#include "nn/host_layers.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

ResnetConfig small_resnet() { return {.channels = 2, .classes = 3, .widths = {4, 6}, .blocks = 1}; }

// An image as [row][column][channel].
using Image = std::vector<host::Rows>;

// A 3x3 (or 1x1) convolution with the same padding on both sides, then the batch norm by running values.
Image convolved(const NormedConv& layer, const Image& x, int64_t stride) {
  const int64_t k = layer.w.shape(0), rows = static_cast<int64_t>(x.size()),
                columns = static_cast<int64_t>(x[0].size());
  const host::Rows w = host::rows_of(layer.w);  // [kh * kw * in][out]
  const auto in = static_cast<size_t>(layer.w.shape(2)), out = static_cast<size_t>(layer.w.shape(3));
  const auto values = [](const Array& a) { return a.to_vector<double>(); };
  const host::Row scale = values(layer.norm.scale), bias = values(layer.norm.bias), mean = values(layer.norm.mean),
                  variance = values(layer.norm.variance);
  Image y;
  for (int64_t r = 0; r < rows; r += stride) {
    host::Rows line;
    for (int64_t c = 0; c < columns; c += stride) {
      host::Row sum(out);
      for (int64_t i = 0; i < k; ++i)
        for (int64_t j = 0; j < k; ++j) {
          const int64_t row = r + i - k / 2, column = c + j - k / 2;
          if (row < 0 || row >= rows || column < 0 || column >= columns) continue;
          for (size_t a = 0; a < in; ++a)
            for (size_t o = 0; o < out; ++o)
              sum[o] += x[static_cast<size_t>(row)][static_cast<size_t>(column)][a] *
                        w[static_cast<size_t>(i * k + j) * in + a][o];
        }
      for (size_t o = 0; o < out; ++o) sum[o] = (sum[o] - mean[o]) / std::sqrt(variance[o] + 1e-5) * scale[o] + bias[o];
      line.push_back(sum);
    }
    y.push_back(line);
  }
  return y;
}

// relu(x + more); `more` may be empty.
Image rectified(Image x, const Image& more = {}) {
  for (size_t r = 0; r < x.size(); ++r)
    for (size_t c = 0; c < x[r].size(); ++c)
      for (size_t o = 0; o < x[r][c].size(); ++o)
        x[r][c][o] = std::max(0.0, x[r][c][o] + (more.empty() ? 0 : more[r][c][o]));
  return x;
}

host::Row reference_resnet(const Resnet& net, const Image& image) {
  Image x = rectified(convolved(net.stem, image, 1));
  for (size_t stage = 0; stage < net.stages.size(); ++stage)
    for (size_t i = 0; i < net.stages[stage].size(); ++i) {
      const ResidualBlock& block = net.stages[stage][i];
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      const Image y = convolved(block.second, rectified(convolved(block.first, x, stride)), 1);
      x = rectified(y, block.shortcut ? convolved(*block.shortcut, x, stride) : x);
    }
  host::Row features(x[0][0].size());
  for (const host::Rows& line : x)
    for (const host::Row& pixel : line)
      for (size_t o = 0; o < pixel.size(); ++o) features[o] += pixel[o] / static_cast<double>(x.size() * x[0].size());
  return host::linear(net.head, features);
}

TEST(Resnet, MatchesPlainLoops) {
  const ResnetConfig config = small_resnet();
  uint64_t leaf = 0;
  // All leaves differ from their initial values; running variances stay positive.
  const Resnet net = tree_map(
      [&](const Array& a) { return astype(a + 0.1f * abs(random::normal(random::key(++leaf), a.shape())), f64); },
      create_resnet(config, random::key(1)));
  // An even and an odd number of rows and columns.
  const Array images = astype(random::normal(random::key(2), {2, 6, 5, 2}), f64);
  const host::Rows pixels = host::rows_of(images);
  std::vector<double> wanted;
  for (size_t n = 0; n < 2; ++n) {
    Image image;
    for (size_t r = 0; r < 6; ++r) {
      const auto begin = pixels.begin() + static_cast<std::ptrdiff_t>((n * 6 + r) * 5);
      image.emplace_back(begin, begin + 5);
    }
    for (double v : reference_resnet(net, image)) wanted.push_back(v);
  }
  EXPECT_ELEMENTS(apply(config, net, images, {.compute = f64}), wanted, 1e-10);
}

TEST(Resnet, Resnet18HasTheKnownParameters) {
  const auto create = [](Array key) { return create_resnet({.channels = 3}, key); };
  const Resnet form = detail::trace_call("count", create, random::key(0)).result;
  int64_t trained = 0, states = 0;
  detail::for_each_leaf(
      form, [&](const std::string&, const Array& a, bool is_state) { (is_state ? states : trained) += a.size(); });
  EXPECT_EQ(trained, 11'173'962);
  EXPECT_EQ(states, 9'600);
  EXPECT_EQ(tree_flatten(form)[0].first, "stem/w");
  EXPECT_EQ(tree_flatten(form)[5].first, "stages/0/0/first/w");
}

TEST(Resnet, StartsWithHeFiltersByFanOut) {
  const Resnet net = create_resnet({.widths = {32, 64}, .blocks = 1, .zero_residual_scale = true}, random::key(1));
  EXPECT_NEAR(standard_deviation(net.stages[1][0].first.w).item<double>(), std::sqrt(2.0 / (9 * 64)), 1e-3);
  EXPECT_EQ(net.stages[1][0].second.norm.scale.to_vector<float>(), std::vector<float>(64));
  EXPECT_EQ(net.stages[1][0].first.norm.scale.to_vector<float>(), std::vector<float>(64, 1));
  EXPECT_LE(max(abs(net.head.w)).item<float>(), 0.125F);
  EXPECT_FALSE(net.stages[0][0].shortcut.has_value());
  EXPECT_TRUE(net.stages[1][0].shortcut.has_value());
}

TEST(Resnet, TakesGrayImagesWithoutAChannelDimension) {
  const ResnetConfig config{.widths = {4, 4}, .blocks = 1};
  const Resnet net = create_resnet(config, random::key(1));
  const Array images = random::normal(random::key(2), {3, 8, 8});
  const Array logits = apply(config, net, images, {});
  EXPECT_EQ(logits.type(), (Type{f32, {3, 10}}));
  EXPECT_EQ(logits.to_vector<float>(), apply(config, net, expand_dims(images, 3), {}).to_vector<float>());
  EXPECT_EQ(apply(config, net, astype(images, bf16), {.compute = bf16}).dtype(), bf16);
}

// Trains on one batch, with the running values, and returns the loss of the evaluation.
float overfit_resnet(DType compute, int steps) {
  const ResnetConfig config = small_resnet();
  const Optimizer adam{.kind = Optimizer::Kind::adam, .schedule = {.peak = 1e-2}};
  const Array images = random::normal(random::key(2), {8, 6, 6, 2}),
              labels = random::randint(random::key(3), {8}, 0, 3);
  const auto step = jit([&](Resnet net, OptimizerState state) {
    const auto loss = [&](Resnet n) {
      nn::StateUpdates updates;
      const nn::Mode mode{.training = true, .compute = compute, .updates = &updates};
      const Array value = mean(softmax_cross_entropy(apply(config, n, astype(images, compute), mode), labels));
      return std::pair{value, nn::with_updates(n, updates)};
    };
    auto [value, grads] = value_and_grad(loss)(net);
    return update(adam, value.second, grads, state);
  });
  Resnet net = create_resnet(config, random::key(5));
  OptimizerState state = create_state(adam, net);
  for (int i = 0; i < steps; ++i) std::tie(net, state) = step(net, state);
  return mean(softmax_cross_entropy(apply(config, net, images, {}), labels)).item<float>();
}

TEST(Resnet, OverfitsOneBatch) {
  EXPECT_GT(overfit_resnet(f32, 0), 0.8F);
  EXPECT_LT(overfit_resnet(f32, 60), 0.1F);
  EXPECT_LT(overfit_resnet(bf16, 60), 0.2F);
}

TEST(Resnet, InvalidValuesAreRejected) {
  const Resnet net = create_resnet(small_resnet(), random::key(1));
  EXPECT_ERROR(apply(small_resnet(), net, ones({2, 4, 6}), {}),
               "resnet: the images are [2, 4, 6]; this model takes [n, rows, columns, 2]");
  EXPECT_ERROR(apply(small_resnet(), net, ones({2, 4, 6, 2}, u8), {}), "convert them to floating point");
  EXPECT_ERROR(check(ResnetConfig{.widths = {}}), "resnet: widths is empty");
  EXPECT_ERROR(check(ResnetConfig{.widths = {64, 0}}), "resnet: a width is 0; it must be between 1 and 1048576");
  EXPECT_ERROR(check(ResnetConfig{.classes = -1}), "resnet: classes is -1");
}

}  // namespace
}  // namespace lockstep
