#include <cmath>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "lockstep/nn.h"
#include "nn/differences.h"
#include "nn/host_layers.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

Array normal64(uint64_t seed, const Shape& shape) { return astype(random::normal(random::key(seed), shape), f64); }

TEST(RmsNorm, MatchesPlainLoops) {
  const Array x = normal64(1, {2, 3, 5}) * 4.0, scale = normal64(2, {5});
  host::Rows wanted;
  for (const host::Row& row : host::rows_of(x)) wanted.push_back(host::rms_norm(row, scale.to_vector<double>(), 1e-3));
  EXPECT_ELEMENTS(nn::apply(nn::RmsNorm{scale}, x, 1e-3), host::flat(wanted), 1e-12);
}

TEST(RmsNorm, GradientsMatchFiniteDifferences) {
  const Array x = normal64(1, {3, 4}), scale = normal64(2, {4}), factors = normal64(3, {3, 4});
  expect_gradient([&](Array v) { return sum(factors * nn::apply(nn::RmsNorm{scale}, v)); }, x);
  expect_gradient([&](Array v) { return sum(factors * nn::apply(nn::RmsNorm{v}, x)); }, scale);
}

TEST(RmsNorm, LowPrecisionIsComputedInF32) {
  // The squares overflow f16.
  const nn::RmsNorm layer{ones({2}, f16)};
  EXPECT_TEXT(nn::apply(layer, astype(array({{-1000.f, 1000.f}}), f16)), "f16[1,2] [[-1, 1]]");
  EXPECT_TEXT(nn::apply(nn::rms_norm(2), array({{0.f, 0.f}})), "f32[1,2] [[0, 0]]");
}

TEST(RmsNorm, MismatchedShapesAreRejected) {
  EXPECT_ERROR(nn::apply(nn::rms_norm(3), ones({2, 4})),
               "nn::apply: x is [2, 4], but the RMS norm has scale [3]; give x as [..., features]");
  EXPECT_ERROR(nn::apply(nn::rms_norm(3), ones({2, 3}), -1), "the epsilon of a RMS norm is -1");
  EXPECT_ERROR(nn::rms_norm(0), "nn::rms_norm: 0 features; the number must be positive");
}

// Group norm of x [n, ..., c] by the formula, in f64.
std::vector<double> group_normalized(const Array& x, int64_t groups, const Array& scale, const Array& bias,
                                     double epsilon) {
  const std::vector<double> in = x.to_vector<double>(), s = scale.to_vector<double>(), b = bias.to_vector<double>();
  std::vector<double> out(in.size());
  const int64_t n = x.shape(0), c = x.shape(-1), places = x.size() / (n * c), width = c / groups;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t g = 0; g < groups; ++g) {
      const auto index = [&](int64_t p, int64_t k) {
        return static_cast<size_t>((i * places + p) * c + g * width + k);
      };
      const auto sum_of = [&](const auto& f) {
        double total = 0;
        for (int64_t p = 0; p < places; ++p)
          for (int64_t k = 0; k < width; ++k) total += f(in[index(p, k)]);
        return total / static_cast<double>(places * width);
      };
      const double mean = sum_of([](double v) { return v; });
      const double variance = sum_of([&](double v) { return (v - mean) * (v - mean); });
      for (int64_t p = 0; p < places; ++p)
        for (int64_t k = 0; k < width; ++k) {
          const auto channel = static_cast<size_t>(g * width + k);
          out[index(p, k)] = (in[index(p, k)] - mean) / std::sqrt(variance + epsilon) * s[channel] + b[channel];
        }
    }
  return out;
}

TEST(GroupNorm, MatchesTheFormula) {
  for (const Shape& shape : {Shape{3, 12}, Shape{2, 5, 12}, Shape{2, 3, 4, 12}, Shape{2, 2, 3, 2, 12}})
    for (const int64_t groups : {1, 3, 12}) {
      const Array x = normal64(1, shape) * 3.0 + 7.0, scale = normal64(2, {12}), bias = normal64(3, {12});
      EXPECT_ELEMENTS(nn::apply(nn::GroupNorm{scale, bias, groups}, x, 1e-3),
                      group_normalized(x, groups, scale, bias, 1e-3), 1e-11);
    }
}

TEST(GroupNorm, GradientsMatchFiniteDifferences) {
  const Array x = normal64(1, {2, 3, 4}), factors = normal64(3, {2, 3, 4}), scale = normal64(4, {4}),
              bias = normal64(5, {4});
  const auto loss = [&](const Array& v, const Array& s, const Array& b) {
    return sum(factors * nn::apply(nn::GroupNorm{s, b, 2}, v));
  };
  expect_gradient([&](Array v) { return loss(v, scale, bias); }, x);
  expect_gradient([&](Array v) { return loss(x, v, bias); }, scale);
  expect_gradient([&](Array v) { return loss(x, scale, v); }, bias);
}

TEST(GroupNorm, LowPrecisionIsComputedInF32) {
  // The squares overflow f16, and bf16 has not enough digits for the mean.
  const nn::GroupNorm layer = nn::group_norm(2, 1);
  EXPECT_TEXT(nn::apply(layer, astype(array({{-1000.f, 1000.f}}), f16)), "f16[1,2] [[-1, 1]]");
  EXPECT_TEXT(nn::apply(layer, astype(array({{256.f, 258.f}}), bf16)), "bf16[1,2] [[-1, 1]]");
}

TEST(GroupNorm, IsALayerOfAModel) {
  struct ConvAndNorm {
    nn::Conv2d conv;
    nn::GroupNorm norm;
  };
  const ConvAndNorm net{nn::conv2d(random::key(1), 3, 2, 4), nn::group_norm(4, 2)};
  const Array x = random::normal(random::key(2), {2, 5, 5, 2});
  const auto loss = [&](const ConvAndNorm& n) { return sum(square(nn::apply(n.norm, nn::apply(n.conv, x)))); };
  const ConvAndNorm grads = jit([&](ConvAndNorm n) { return grad(loss)(n); })(net);
  EXPECT_EQ(grads.norm.groups, 2);
  EXPECT_EQ(tree_leaves(grads).size(), 4u);
  EXPECT_GT(max(abs(grads.norm.scale)).item<float>(), 0);
}

TEST(GroupNorm, WrongGroupsAndShapesAreRejected) {
  EXPECT_ERROR(nn::group_norm(4, 3),
               "nn::group_norm: 4 features do not divide into 3 groups; the second must divide the first");
  EXPECT_ERROR(nn::group_norm(4, 0), "do not divide into 0 groups");
  EXPECT_ERROR(nn::apply(nn::group_norm(4, 2), ones({2, 6})),
               "nn::apply: x is [2, 6], but the group norm has scale [4] and bias [4]; give x as [n, ..., features]");
  EXPECT_ERROR(nn::apply(nn::group_norm(4, 2), ones({2, 4}), -1), "the epsilon of a group norm is -1");
  EXPECT_ERROR(group_norm(ones({2, 4}), 3, ones({4}), ones({4})), "group_norm: 4 channels do not divide into 3 groups");
  EXPECT_ERROR(group_norm(ones({2, 4}), 2, ones({2}), ones({4})), "scale is [2] and bias [4]; both must be [4]");
  EXPECT_ERROR(group_norm(ones({4}), 2, ones({4}), ones({4})),
               "group_norm: x is f32[4]; it must be [n, ..., channels]");
  EXPECT_ERROR(group_norm(ones({2, 4}), 2, ones({4}), ones({4}), -1), "group_norm: the epsilon is -1");
}

// Mean and variance of each feature of x [..., features], with this many degrees of freedom subtracted.
struct Statistics {
  std::vector<double> mean, variance;
};
Statistics statistics_of(const Array& x, double ddof) {
  const host::Rows rows = host::rows_of(x);
  const auto n = static_cast<double>(rows.size());
  Statistics out{host::Row(rows[0].size()), host::Row(rows[0].size())};
  for (size_t i = 0; i < out.mean.size(); ++i) {
    for (const host::Row& row : rows) out.mean[i] += row[i] / n;
    for (const host::Row& row : rows) out.variance[i] += std::pow(row[i] - out.mean[i], 2) / (n - ddof);
  }
  return out;
}

std::vector<double> normalized(const Array& x, const Statistics& by, const nn::BatchNorm& layer, double epsilon) {
  const std::vector<double> scale = layer.scale.to_vector<double>(), bias = layer.bias.to_vector<double>();
  host::Rows rows = host::rows_of(x);
  for (host::Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i)
      row[i] = (row[i] - by.mean[i]) / std::sqrt(by.variance[i] + epsilon) * scale[i] + bias[i];
  return host::flat(rows);
}

nn::BatchNorm some_batch_norm(int64_t features) {
  return {normal64(11, {features}), normal64(12, {features}), normal64(13, {features}),
          square(normal64(14, {features})) + 0.1};
}

TEST(BatchNorm, NormalizesByTheBatchInTraining) {
  const Array x = normal64(1, {4, 2, 3, 5}) * 3.0 + 7.0;
  const nn::BatchNorm layer = some_batch_norm(5);
  nn::StateUpdates updates;
  EXPECT_ELEMENTS(nn::apply(layer, x, {.training = true, .updates = &updates}, {.epsilon = 1e-3}),
                  normalized(x, statistics_of(x, 0), layer, 1e-3), 1e-11);
}

TEST(BatchNorm, UsesRunningValuesInEvaluation) {
  const Array x = normal64(1, {4, 5});
  const nn::BatchNorm layer = some_batch_norm(5);
  EXPECT_ELEMENTS(nn::apply(layer, x, {}),
                  normalized(x, {layer.mean.to_vector<double>(), layer.variance.to_vector<double>()}, layer, 1e-5),
                  1e-11);
  // A single row is enough.
  EXPECT_EQ(nn::apply(layer, ones({1, 5}, f64), {}).shape(), (Shape{1, 5}));
}

TEST(BatchNorm, RunningValuesFollowThreeSteps) {
  nn::BatchNorm layer = nn::batch_norm(3);
  const auto step = jit([](nn::BatchNorm params, Array x) {
    nn::StateUpdates updates;
    const nn::Mode mode{.training = true, .updates = &updates};
    const Array y = nn::apply(params, x, mode);
    return std::tuple{updates.value(params.mean), updates.value(params.variance), y};
  });
  std::vector<double> mean(3, 0.0), variance(3, 1.0);
  for (uint64_t i = 0; i < 3; ++i) {
    const Array x = random::normal(random::key(i), {6, 2, 2, 3}) * 2.f + static_cast<float>(i);
    const Statistics batch = statistics_of(x, 1);
    for (size_t f = 0; f < 3; ++f) {
      mean[f] = 0.9 * mean[f] + 0.1 * batch.mean[f];
      variance[f] = 0.9 * variance[f] + 0.1 * batch.variance[f];
    }
    const auto [next_mean, next_variance, y] = step(layer, x);
    layer.mean = next_mean;
    layer.variance = next_variance;
  }
  EXPECT_ELEMENTS(layer.mean, mean, 1e-6);
  EXPECT_ELEMENTS(layer.variance, variance, 1e-5);
}

TEST(BatchNorm, StatesAreNotTrained) {
  std::vector<std::string> trained, states;
  const nn::BatchNorm layer = nn::batch_norm(2);
  detail::for_each_leaf(layer, [&](const std::string& path, const Array&, bool is_state) {
    (is_state ? states : trained).push_back(path);
  });
  EXPECT_EQ(trained, (std::vector<std::string>{"scale", "bias"}));
  EXPECT_EQ(states, (std::vector<std::string>{"mean", "variance"}));
}

TEST(BatchNorm, GradientsMatchFiniteDifferences) {
  const Array x = normal64(1, {4, 2, 3}), factors = normal64(3, {4, 2, 3});
  const nn::BatchNorm layer = some_batch_norm(3);
  nn::StateUpdates updates;
  const nn::Mode training{.training = true, .updates = &updates};
  for (const nn::Mode& mode : {training, nn::Mode{}}) {
    const auto loss = [&](const nn::BatchNorm& params, const Array& v) {
      return sum(factors * nn::apply(params, v, mode));
    };
    expect_gradient([&](Array v) { return loss(layer, v); }, x);
    expect_gradient([&](Array v) { return loss({v, layer.bias, layer.mean, layer.variance}, x); }, layer.scale);
    expect_gradient([&](Array v) { return loss({layer.scale, v, layer.mean, layer.variance}, x); }, layer.bias);
  }
}

TEST(BatchNorm, StatisticsAreGlobalOverDevices) {
  const Array x = random::normal(random::key(1), {24, 5}) + 3.f;
  const nn::BatchNorm layer = nn::batch_norm(5);
  const auto f = jit([](nn::BatchNorm params, Array v) {
    nn::StateUpdates updates;
    const nn::Mode mode{.training = true, .updates = &updates};
    const Array y = nn::apply(params, v, mode);
    return std::pair{y, updates.value(params.variance)};
  });
  const auto [whole, variance] = f(layer, x);
  for (const int n : {2, 8}) {
    const auto [y, v] = f(layer, device_put(x, NamedSharding(make_mesh({{"data", n}}), P("data"))));
    EXPECT_ELEMENTS(y, whole.to_vector<double>(), 1e-5);
    EXPECT_ELEMENTS(v, variance.to_vector<double>(), 1e-6);
  }
}

TEST(BatchNorm, KeepsF32StatisticsInLowPrecision) {
  nn::BatchNorm layer = nn::batch_norm(2);
  layer.scale = astype(layer.scale, bf16);
  layer.bias = astype(layer.bias, bf16);
  nn::StateUpdates updates;
  const Array x = astype(array({{256.f, 1.f}, {258.f, 3.f}}), bf16);
  const Array y = nn::apply(layer, x, {.training = true, .compute = bf16, .updates = &updates});
  EXPECT_TEXT(y, "bf16[2,2] [[-1, -1], [1, 1]]");
  EXPECT_EQ(updates.value(layer.mean).dtype(), f32);
  EXPECT_ELEMENTS(updates.value(layer.mean), {25.7, 0.2}, 1e-5);
  EXPECT_ELEMENTS(updates.value(layer.variance), {1.1, 1.1}, 1e-5);
}

TEST(BatchNorm, InvalidValuesAreRejected) {
  const nn::BatchNorm layer = nn::batch_norm(3);
  EXPECT_ERROR(nn::apply(layer, ones({2, 4}), {}), "nn::apply: x is [2, 4], but the batch norm has [3]");
  EXPECT_ERROR(nn::apply(layer, ones({3}), {}), "give x as [n, ..., features]");
  EXPECT_ERROR(nn::apply(layer, ones({1, 3}), {.training = true}),
               "a batch norm was called in training with x [1, 3]; it needs at least 2 values per feature");
  EXPECT_ERROR(nn::apply(layer, ones({2, 3}), {}, {.momentum = 1.5}), "the momentum of a batch norm is 1.5");
  EXPECT_ERROR(nn::batch_norm(0), "nn::batch_norm: 0 features; the number must be positive");
}

}  // namespace
}  // namespace lockstep
