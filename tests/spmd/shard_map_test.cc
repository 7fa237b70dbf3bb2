// shard_map: values, gradients compared with finite differences, and nesting with other transforms.
#include "lockstep/shard_map.h"

#include <functional>

#include "array/near.h"
#include "lane/lane.h"
#include "lockstep/lockstep.h"
#include "support/text.h"

namespace lockstep {
namespace {

// Numbers in [-1, 1), not monotonic; f64.
Array numbers(const Shape& shape, int salt = 1) {
  std::vector<double> data(static_cast<size_t>(count(shape)));
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<double>((i * 7919 + static_cast<size_t>(salt) * 104729) % 1009) / 504.5 - 1;
  return Array::from(data, shape);
}

Mesh line(int64_t n) { return make_mesh({{"i", n}}); }
Mesh grid() { return make_mesh({{"i", 4}, {"j", 2}}); }

// Compares the gradient of f at x along one direction with a central difference. f: Array -> f64 scalar; g:
// its gradient.
template <class F>
void expect_gradient(const F& f, const Array& g, const Array& x) {
  const Array direction = numbers(x.shape(), 77);
  constexpr double kStep = 1e-5;
  const double up = f(x + direction * kStep).template item<double>(),
               down = f(x - direction * kStep).template item<double>();
  ASSERT_EQ(to_string(g.type()), to_string(x.type()));
  const Array products = g * direction;
  EXPECT_NEAR(sum(products).item<double>(), (up - down) / (2 * kStep), 1e-7 * (1 + sum(abs(products)).item<double>()));
}

TEST(ShardMap, EachDeviceReceivesItsShard) {
  const auto f = shard_map(
      [](Array x) {
        EXPECT_EQ(to_string(x.type()), "i32[2,3]{i,j}");
        return x * 10 + axis_index("i") * 2 + axis_index("j");
      },
      {.mesh = make_mesh({{"i", 2}, {"j", 2}}), .in_specs = {P("j", "i")}, .out_specs = {P("j", "i")}});
  EXPECT_TEXT(
      f(reshape(arange(24), {4, 6})),
      "i32[4,6] [[0, 10, 20, 32, 42, 52], [60, 70, 80, 92, 102, 112], [121, 131, 141, 153, 163, 173], [181, 191, "
      "201, 213, 223, 233]]");
}

TEST(ShardMap, OneDimensionMayBeShardedBySeveralAxes) {
  const auto f = shard_map([](Array x) { return x * 0 + axis_index("i") * 10 + axis_index("j"); },
                           {.mesh = grid(), .in_specs = {P({"j", "i"})}, .out_specs = {P({"j", "i"})}});
  EXPECT_TEXT(f(zeros({8}, i32)), "i32[8] [0, 10, 20, 30, 1, 11, 21, 31]");
  const auto g = shard_map([](Array x) { return x * 0 + axis_index("i") * 10 + axis_index("j"); },
                           {.mesh = grid(), .in_specs = {P({"i", "j"})}, .out_specs = {P({"i", "j"})}});
  EXPECT_TEXT(g(zeros({8}, i32)), "i32[8] [0, 1, 10, 11, 20, 21, 30, 31]");
}

TEST(ShardMap, ReplicatedArgumentsAndResultsAreComplete) {
  const auto f = shard_map(
      [](Array w, Array x) {
        EXPECT_EQ(to_string(w.type()), "f64[3,2]");
        return std::pair{dot(x, w), w * 2};
      },
      {.mesh = line(4), .in_specs = {P(), P("i")}, .out_specs = {P("i"), P()}});
  const Array w = numbers({3, 2}), x = numbers({8, 3});
  const auto [y, twice] = f(w, x);
  EXPECT_ELEMENTS(y, dot(x, w).to_vector<double>(), 1e-14);
  EXPECT_ELEMENTS(twice, (w * 2).to_vector<double>(), 0);
  // A replicated value may be returned once per device.
  const auto copies =
      shard_map([](Array v) { return psum(v, "i"); }, {.mesh = line(4), .in_specs = {P("i")}, .out_specs = {P("i")}});
  EXPECT_TEXT(copies(ones({4})), "f32[4] [4, 4, 4, 4]");
}

TEST(ShardMap, CapturedArraysAreReplicated) {
  const Array shift = array({10, 20});
  const auto f = shard_map([shift](Array x) { return x + shift + axis_index("i"); },
                           {.mesh = line(2), .in_specs = {P("i")}, .out_specs = {P("i")}});
  EXPECT_TEXT(f(arange(4)), "i32[4] [10, 21, 13, 24]");
  EXPECT_TEXT(jit(f)(arange(4)), "i32[4] [10, 21, 13, 24]");
  // Captured from a function being traced.
  const auto outer = jit([](Array x, Array y) {
    return shard_map([y](Array v) { return v * y; },
                     {.mesh = line(2), .in_specs = {P("i")}, .out_specs = {P("i")}})(x + 1);
  });
  EXPECT_TEXT(outer(arange(4), array({2, 3})), "i32[4] [2, 6, 6, 12]");
}

TEST(ShardMap, MayUseSomeOfTheMeshAxes) {
  const auto f = shard_map(
      [](Array x) {
        EXPECT_EQ(to_string(x.type()), "i32[1,4]{i}");  // not sharded by "j"
        return psum(x, "i");
      },
      {.mesh = grid(), .in_specs = {P("i", "j")}, .out_specs = {P({}, "j")}, .axes = {"i"}});
  EXPECT_TEXT(f(reshape(arange(16), {4, 4})), "i32[1,4] [[24, 28, 32, 36]]");
}

TEST(ShardMap, Nests) {
  const auto f = shard_map(
      [](Array x) {
        const auto inner = shard_map([](Array y) { return psum(y, "j") + axis_index("i") * 100; },
                                     {.mesh = grid(), .in_specs = {P({}, "j")}, .out_specs = {P()}, .axes = {"j"}});
        return inner(x);
      },
      {.mesh = grid(), .in_specs = {P("i")}, .out_specs = {P("i")}, .axes = {"i"}});
  EXPECT_TEXT(f(reshape(arange(16), {4, 4})), "i32[4,2] [[2, 4], [110, 112], [218, 220], [326, 328]]");
}

TEST(ShardMap, CommutesWithVmap) {
  const auto normalize = [](Array x) { return x / psum(sum(x), "i"); };
  const Array x = abs(numbers({3, 8})) + 1;
  const ShardMapOptions rows{.mesh = line(4), .in_specs = {P("i")}, .out_specs = {P("i")}};
  const ShardMapOptions columns{.mesh = line(4), .in_specs = {P({}, "i")}, .out_specs = {P({}, "i")}};
  const Array wanted = x / sum(x, 1, {.keepdims = true});
  EXPECT_ELEMENTS(vmap(shard_map(normalize, rows))(x), wanted.to_vector<double>(), 1e-14);
  EXPECT_ELEMENTS(shard_map(vmap(normalize), columns)(x), wanted.to_vector<double>(), 1e-14);
  EXPECT_ELEMENTS(jit(vmap(shard_map(normalize, rows)))(x), wanted.to_vector<double>(), 1e-14);
  // The mapped axis has its own name.
  const auto both = vmap(shard_map([](Array v) { return psum(psum(v, "b"), "i"); },
                                   {.mesh = line(4), .in_specs = {P("i")}, .out_specs = {P()}}),
                         {.axis_name = "b"});
  EXPECT_TEXT(both(reshape(arange(24), {3, 8})), "i32[3,2] [[132, 144], [132, 144], [132, 144]]");
}

struct Collective {
  const char* name;
  std::function<Array(Array)> f;  // of one device's f64[4,4], sharded over "i" (4) and "j" (2)
};

std::vector<Collective> collectives() {
  const std::vector<std::string> both = {"i", "j"};
  return {
      {"psum", [](Array x) { return psum(x, "i"); }},
      {"psum both", [=](Array x) { return psum(x, both); }},
      {"pmean", [](Array x) { return pmean(x, "j"); }},
      {"pmax", [](Array x) { return pmax(x, "i"); }},
      {"pmin", [=](Array x) { return pmin(x, both); }},
      {"all_gather",
       [](Array x) {
         return sum(all_gather(x, "i") * numbers({4, 4, 4}), 0);
       }},
      {"all_gather both",
       [=](Array x) {
         return sum(all_gather(x, both, {.axis = 1, .tiled = true}) * numbers({4, 32}), 1);
       }},
      {"psum_scatter", [](Array x) { return psum_scatter(x, "i", {.axis = 1}); }},
      {"psum_scatter tiled", [](Array x) { return psum_scatter(x, "j", {.tiled = true}); }},
      {"all_to_all", [](Array x) { return all_to_all(x, "i", 0, 1); }},
      {"all_to_all tiled", [](Array x) { return all_to_all(x, "i", 0, 1, true); }},
      {"ppermute",
       [](Array x) {
         return ppermute(x, "i", {{0, 1}, {1, 2}, {3, 0}});
       }},
      {"ppermute both",
       [=](Array x) {
         return ppermute(x, both, {{0, 7}, {7, 1}, {3, 2}});
       }},
      {"pbroadcast", [](Array x) { return pbroadcast(x, "i", 2); }},
      {"pvary", [](Array x) { return pvary(psum(x, "i"), "i"); }},
      {"axis_index", [](Array x) { return x * astype(axis_index("i") + 1, f64); }},
  };
}

// A device's contribution to the loss: depends on every element of the collective's result, differently on
// each device.
Array weighted_loss(const Collective& c, const Array& x) {
  const Array y = c.f(sin(x) + 0.1 * x);
  return sum(y * y * numbers(y.shape(), 5)) * astype(axis_index("i") * 2 + axis_index("j") + 1, f64);
}

const std::vector<std::string> kBoth = {"i", "j"};

TEST(ShardMapGradient, OutsideShardMap) {
  const Array x = numbers({16, 8});
  for (const Collective& c : collectives()) {
    SCOPED_TRACE(c.name);
    const auto mapped = shard_map([&](Array v) { return psum(weighted_loss(c, v), kBoth); },
                                  {.mesh = grid(), .in_specs = {P("i", "j")}, .out_specs = {P()}});
    expect_gradient(mapped, grad(mapped)(x), x);
    EXPECT_ELEMENTS(jit(grad(mapped))(x), grad(mapped)(x).to_vector<double>(), 1e-12);
    // One result per device, combined before the loss.
    const auto pieces = [&](Array v) {
      const Array y = shard_map([&](Array p) { return expand_dims(weighted_loss(c, p), 0); },
                                {.mesh = grid(), .in_specs = {P("i", "j")}, .out_specs = {P({"i", "j"})}})(v);
      return sum(y * numbers({8}, 3));
    };
    expect_gradient(pieces, grad(pieces)(x), x);
  }
}

TEST(ShardMapGradient, InsideShardMap) {
  const Array x = numbers({16, 8});
  for (const Collective& c : collectives()) {
    SCOPED_TRACE(c.name);
    const ShardMapOptions cut{.mesh = grid(), .in_specs = {P("i", "j")}, .out_specs = {P("i", "j")}};
    const ShardMapOptions whole{.mesh = grid(), .in_specs = {P("i", "j")}, .out_specs = {P()}};
    const auto total = [&](Array v) { return psum(weighted_loss(c, v), kBoth); };
    const auto own = [&](Array v) { return weighted_loss(c, v); };
    const auto loss = shard_map(total, whole);
    expect_gradient(loss, shard_map(grad(total), cut)(x), x);
    // Without the psum, each device still computes the gradient of the sum of all devices' losses.
    expect_gradient(loss, shard_map(grad(own), cut)(x), x);
    EXPECT_ELEMENTS(jit(shard_map(grad(own), cut))(x), shard_map(grad(own), cut)(x).to_vector<double>(), 1e-12);
  }
}

TEST(ShardMapGradient, OfReplicatedParametersIsSummed) {
  const Array w = numbers({8, 3}, 2), x = numbers({16, 8});
  const auto plain = [&](Array v) { return mean(square(tanh(dot(x, v)))); };
  const ShardMapOptions options{.mesh = line(8), .in_specs = {P(), P("i")}, .out_specs = {P()}};
  const auto mean_loss = [](Array v, Array batch) { return pmean(mean(square(tanh(dot(batch, v)))), "i"); };
  expect_gradient(plain, shard_map(grad(mean_loss), options)(w, x), w);
  expect_gradient(plain, grad([&](Array v) { return shard_map(mean_loss, options)(v, x); })(w), w);
  // Per-device losses: the gradients of all devices are summed.
  const auto local = [](Array v, Array batch) { return mean(square(tanh(dot(batch, v)))) / 8; };
  expect_gradient(plain, shard_map(grad(local), options)(w, x), w);
  // With a varying parameter, each device has its own gradient.
  const auto own = [&](Array v, Array batch) { return pmean(grad(local)(pvary(v, "i"), batch), "i") * 8; };
  expect_gradient(plain, shard_map(own, options)(w, x), w);
}

TEST(ShardMapGradient, SecondOrder) {
  const Array x = numbers({8, 4});
  const auto loss = shard_map([](Array v) { return psum(sum(sin(v * psum(v, "i"))), "i"); },
                              {.mesh = line(4), .in_specs = {P("i")}, .out_specs = {P()}});
  const auto slope = [&](Array v) { return sum(grad(loss)(v) * numbers({8, 4}, 9)); };
  expect_gradient(slope, grad(slope)(x), x);
}

// Checks f, which maps one device's f64[2,4] to a replicated scalar: its value under jit, and gradients
// outside and inside.
template <class F>
void expect_body(const F& f, const std::function<Array(Array)>& plain) {
  const Array x = numbers({8, 4});
  const auto mapped = shard_map(f, {.mesh = line(4), .in_specs = {P("i")}, .out_specs = {P()}});
  EXPECT_NEAR(mapped(x).template item<double>(), plain(x).item<double>(), 1e-12);
  EXPECT_NEAR(jit(mapped)(x).template item<double>(), plain(x).item<double>(), 1e-12);
  expect_gradient(plain, grad(mapped)(x), x);
  expect_gradient(plain, jit(grad(mapped))(x), x);
  expect_gradient(plain, shard_map(grad(f), {.mesh = line(4), .in_specs = {P("i")}, .out_specs = {P("i")}})(x), x);
}

TEST(ShardMapBodies, ScanWithAnInvariantCarry) {
  expect_body(
      [](Array x) {
        return scan([](Array c, Array v) { return std::pair{sin(c + psum(sum(v), "i")), c}; }, zeros({}, f64), x).first;
      },
      [](Array x) {
        Array c = zeros({}, f64);
        for (int64_t t = 0; t < 2; ++t)
          c = sin(c + sum(at(x, t)) + sum(at(x, t + 2)) + sum(at(x, t + 4)) + sum(at(x, t + 6)));
        return c;
      });
}

TEST(ShardMapBodies, ScanWithAVaryingCarryAroundARing) {
  expect_body(
      [](Array x) {
        const auto step = [x](Array c, Nothing) {
          const Array next = ppermute(c, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
          return std::pair{next, sum(next * sin(x))};
        };
        return psum(sum(square(scan(step, x, Nothing{}, {.length = 3}).second)), "i");
      },
      [](Array x) {
        Array total = zeros({}, f64);
        for (int64_t device = 0; device < 4; ++device)
          for (int64_t t = 1; t <= 3; ++t) {
            const int64_t from = (device + 8 - t) % 4;
            const Array mine = slice(x, {device * 2, 0}, {device * 2 + 2, 4});
            const Array theirs = slice(x, {from * 2, 0}, {from * 2 + 2, 4});
            total += square(sum(theirs * sin(mine)));
          }
        return total;
      });
}

TEST(ShardMapBodies, CondWithAnInvariantPredicate) {
  for (double sign : {1.0, -1.0})
    expect_body(
        [sign](Array x) {
          const Array total = psum(sum(square(x)), "i");
          return cond(
              total * sign > 0, [](Array v) { return psum(sum(sin(v)), "i"); },
              [](Array v) { return pmean(sum(v * v * v), "i"); }, x);
        },
        [sign](Array x) { return sign > 0 ? sum(sin(x)) : sum(x * x * x) / 4; });
}

TEST(ShardMapBodies, CondWithAVaryingPredicate) {
  expect_body(
      [](Array x) {
        return psum(
            cond(
                axis_index("i") < 2, [](Array v) { return sum(sin(v)); }, [](Array v) { return sum(v * v); }, x),
            "i");
      },
      [](Array x) {
        return sum(sin(slice(x, {0, 0}, {4, 4}))) + sum(square(slice(x, {4, 0}, {8, 4})));
      });
}

TEST(ShardMapBodies, Remat) {
  expect_body(
      [](Array x) {
        const auto f = remat([](Array v) { return sin(v * psum(v, "i")); });
        return psum(sum(f(x) * f(sin(x))), "i");
      },
      [](Array x) {
        const auto f = [](Array v) { return sin(v * tile(sum(reshape(v, {4, 2, 4}), 0), {4, 1})); };
        return sum(f(x) * f(sin(x)));
      });
}

TEST(ShardMapBodies, CustomGradient) {
  const auto f =
      custom_vjp([](Array v) { return v * psum(v, "i"); },
                 [](Array v) {
                   const Array s = psum(v, "i");
                   return std::pair{v * s, std::pair{v, s}};
                 },
                 [](std::pair<Array, Array> kept, Array ct) { return ct * kept.second + psum(ct * kept.first, "i"); });
  expect_body([f](Array x) { return psum(sum(sin(f(x))), "i"); },
              [](Array x) {
                return sum(sin(x * tile(sum(reshape(x, {4, 2, 4}), 0), {4, 1})));
              });
}

// Checks f, which maps a replicated f64[4] and one device's f64[2,4] to a replicated scalar: gradients of
// both arguments.
template <class F>
void expect_body_with_parameters(const F& f, const std::function<Array(Array, Array)>& plain) {
  const Array w = numbers({4}, 3), x = numbers({8, 4});
  const auto mapped = shard_map(f, {.mesh = line(4), .in_specs = {P(), P("i")}, .out_specs = {P()}});
  EXPECT_NEAR(mapped(w, x).template item<double>(), plain(w, x).item<double>(), 1e-12);
  const auto of_w = [&](Array v) { return plain(v, x); };
  const auto of_x = [&](Array v) { return plain(w, v); };
  const auto [gw, gx] = grad<0, 1>(mapped)(w, x);
  expect_gradient(of_w, gw, w);
  expect_gradient(of_x, gx, x);
  const auto [inside_w, inside_x] =
      jit(shard_map(grad<0, 1>(f), {.mesh = line(4), .in_specs = {P(), P("i")}, .out_specs = {P(), P("i")}}))(w, x);
  expect_gradient(of_w, inside_w, w);
  expect_gradient(of_x, inside_x, x);
}

TEST(ShardMapBodies, ParametersInScan) {
  expect_body_with_parameters(
      [](Array w, Array x) {
        const auto step = [w](Array c, Array v) { return std::pair{sin(c + psum(sum(v * w), "i")), sum(w * v)}; };
        const auto [last, each] = scan(step, zeros({}, f64), x);
        return last + psum(sum(sin(each)), "i");
      },
      [](Array w, Array x) {
        Array c = zeros({}, f64);
        for (int64_t t = 0; t < 2; ++t) c = sin(c + sum((at(x, t) + at(x, t + 2) + at(x, t + 4) + at(x, t + 6)) * w));
        return c + sum(sin(sum(x * w, 1)));
      });
}

TEST(ShardMapBodies, InvariantResultsOfACondByDeviceVary) {
  const auto f = shard_map(
      [](Array x) {
        const Array s = psum(x, "i");
        return cond(
            axis_index("i") < 1, [](Array v) { return v; }, [](Array v) { return v * 2; }, s);
      },
      {.mesh = line(2), .in_specs = {P("i")}, .out_specs = {P("i")}});
  EXPECT_TEXT(f(array({1, 2})), "i32[2] [3, 6]");
}

TEST(ShardMapBodies, ParametersInRemat) {
  expect_body_with_parameters(
      [](Array w, Array x) {
        const auto f = remat([](Array p, Array v) { return sin(v * p + psum(v, "i")); });
        return psum(sum(f(w, x)), "i");
      },
      [](Array w, Array x) {
        return sum(sin(x * w + tile(sum(reshape(x, {4, 2, 4}), 0), {4, 1})));
      });
}

Array first_half(const Array& x) { return slice(x, {0, 0}, {4, 4}); }
Array second_half(const Array& x) { return slice(x, {4, 0}, {8, 4}); }

TEST(ShardMapBodies, ParametersInCondByDevice) {
  expect_body_with_parameters(
      [](Array w, Array x) {
        const Array mine = cond(
            axis_index("i") < 2, [](Array p, Array v) { return sum(sin(v * p)); },
            [](Array p, Array v) { return sum(v * v * p * p * p); }, w, x);
        return psum(mine, "i");
      },
      [](Array w, Array x) { return sum(sin(first_half(x) * w)) + sum(square(second_half(x)) * w * w * w); });
  // Captured, and used by one branch only.
  expect_body_with_parameters(
      [](Array w, Array x) {
        const Array mine = cond(
            axis_index("i") < 2, [w](Array v) { return sum(sin(v * w)); }, [](Array v) { return sum(v); }, x);
        return psum(mine, "i");
      },
      [](Array w, Array x) { return sum(sin(first_half(x) * w)) + sum(second_half(x)); });
}

TEST(ShardMapBodies, ParametersOfCustomGradients) {
  const auto f = custom_vjp([](Array w, Array x) { return w * x; },
                            [](Array w, Array x) {
                              return std::pair{w * x, std::pair{w, x}};
                            },
                            [](std::pair<Array, Array> kept, Array ct) {
                              // The first argument is replicated, and so is its gradient.
                              return std::tuple{psum(sum(ct * kept.second, 0), "i"), ct * kept.first};
                            });
  expect_body_with_parameters([f](Array w, Array x) { return psum(sum(sin(f(w, x))), "i"); },
                              [](Array w, Array x) { return sum(sin(w * x)); });
}

TEST(ShardMapBodies, InvariantResultsOfCustomGradients) {
  const auto f = custom_vjp([](Array x) { return psum(sum(x), "i"); },
                            [](Array x) {
                              return std::pair{psum(sum(x), "i"), x};
                            },
                            [](Array x, Array ct) { return pvary(ct, "i") + x * 0; });
  expect_body([f](Array x) { return f(sin(x)); }, [](Array x) { return sum(sin(x)); });
}

struct Layers {
  Array w1, b1, w2, b2;
};

TEST(ShardMapText, ADataParallelStepIsOneProductPerWeight) {
  const auto loss = [](Layers p, Array x, Array y) {
    const Array hidden = relu(dot(x, p.w1) + p.b1);
    return pmean(mean(square(dot(hidden, p.w2) + p.b2 - y)), "i");
  };
  const auto step = jit(shard_map(
      [loss](Layers p, Array x, Array y) {
        const Layers g = grad(loss)(p, x, y);
        return tree_map([](const Array& a, const Array& b) { return a - 0.1f * b; }, p, g);
      },
      {.mesh = line(8), .in_specs = {P(), P("i"), P("i")}, .out_specs = {P()}}));
  const Layers p{zeros({12, 20}), zeros({20}), zeros({20, 6}), zeros({6})};
  const std::string text = step.lowered(p, zeros({32, 12}), zeros({32, 6}));
  SCOPED_TRACE(text);
  // Per lane: two products forward; backward one per weight and one for the hidden layer.
  EXPECT_EQ(occurrences(text, " einsum"), 5u * static_cast<size_t>(local_lane_count()));
  EXPECT_EQ(occurrences(text, "f32[8,12,20]"), 0u);
  EXPECT_EQ(occurrences(text, "f32[8,20,6]"), 0u);
  for (const char* weights : {"f32[12,20]", "f32[20,6]"}) EXPECT_GT(occurrences(text, weights), 0u) << weights;
}

// A replicated value combined with a varying one becomes varying, also as a carry and as the result of a
// branch.
TEST(ShardMap, CarriesAndBranchesBecomeVarying) {
  const Mesh mesh = line(4);
  const auto sums = [](Array first, Array xs) {
    return scan([](Array c, Array v) { return std::pair{c + v, c}; }, first, xs).second;
  };
  const auto f = shard_map(sums, {.mesh = mesh, .in_specs = {P(), P("i")}, .out_specs = {P("i")}});
  const Array x = numbers({8});
  std::vector<double> before(8, 0);
  for (size_t i = 1; i < 8; i += 2) before[i] = x.data<double>()[i - 1];
  const std::string wanted = Array::from(before, {8}).to_string();
  EXPECT_TEXT(f(zeros({}, f64), x), wanted);
  EXPECT_TEXT(jit(f)(zeros({}, f64), x), wanted);
  const auto loss = [&](Array first) { return sum(f(first, x) * numbers({8}, 3)); };
  const Array first = full({}, .5, f64);
  expect_gradient(loss, grad(loss)(first), first);

  // Conversely, a varying carry that becomes invariant may still vary.
  const auto totals = [](Array xs) {
    return scan([](Array c, Array v) { return std::pair{psum(c + v, "i"), c}; }, sum(xs) * 0, xs).second;
  };
  EXPECT_TEXT(shard_map(totals, {.mesh = line(2), .in_specs = {P("i")}, .out_specs = {P("i")}})(array({1, 2, 3, 4})),
              "i32[4] [0, 4, 0, 4]");

  const auto either = [](Array own, Array shared) {
    return cond(
        sum(shared) > 0, [](Array v, Array) { return v; }, [](Array, Array s) { return s; }, own, shared);
  };
  const auto g = shard_map(either, {.mesh = mesh, .in_specs = {P("i"), P()}, .out_specs = {P("i")}});
  EXPECT_TEXT(g(array({1, 2, 3, 4}), full({1}, 9, i32)), "i32[4] [1, 2, 3, 4]");
  EXPECT_TEXT(g(array({1, 2, 3, 4}), full({1}, -9, i32)), "i32[4] [-9, -9, -9, -9]");
}

}  // namespace
}  // namespace lockstep
