// pmap: values, the axes that go to devices, donation and gradients.
#include "array/near.h"
#include "lane/lane.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

TEST(Pmap, LikeFunctionsKeepVaryingAxes) {
  const auto either = [](Array x) {
    return cond(
        sum(x) > 2.f, [](Array y) { return y * 2.f; }, [](Array y) { return zeros_like(y); }, x);
  };
  EXPECT_TEXT(pmap(either)(array({{1.f, 1.f}, {2.f, 2.f}})), "f32[2,2] [[0, 0], [4, 4]]");
  const auto back = [](Array x) {
    const auto [y, pullback] = vjp([](Array v) { return v * v; }, x);
    return std::get<0>(pullback(ones_like(y)));
  };
  EXPECT_TEXT(pmap(back)(array({1.f, 3.f})), "f32[2] [2, 6]");
  const auto total = [](Array first, Array row) {
    return scan([](Array c, Array x) { return std::pair{c + x, c}; }, first, row).first;
  };
  const Array rows = array({{1.f, 2.f}, {3.f, 4.f}});
  EXPECT_TEXT(pmap([&](Array row) { return total(0.f, row); })(rows), "f32[2] [3, 7]");
  EXPECT_TEXT(pmap([&](Array row) { return total(pvary(0.f, "devices"), row); })(rows), "f32[2] [3, 7]");
  EXPECT_TEXT(pmap([&](Array row) { return total(zeros_like(sum(row)), row); })(rows), "f32[2] [3, 7]");
}

TEST(Pmap, KeysMayDifferFromDeviceToDevice) {
  const Array keys = random::split(random::key(7), 8);
  const Array drawn = pmap([](Array key) { return random::normal(key, {3}); })(keys);
  const Array more =
      pmap([](Array key, Array x) { return x + random::uniform(random::fold_in(key, axis_index("devices")), {3}); },
           {.in_axes = {std::nullopt, 0}})(random::key(7), zeros({8}));
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(at(drawn, i).to_vector<float>(), random::normal(at(keys, i), {3}).to_vector<float>());
    EXPECT_EQ(at(more, i).to_vector<float>(),
              random::uniform(random::fold_in(random::key(7), i), {3}).to_vector<float>());
  }
}

TEST(Pmap, RunsOneElementOnEachDevice) {
  const auto f = pmap([](Array x) { return x / psum(x, "devices"); });
  EXPECT_TEXT(f(array({1.f, 3.f, 4.f})), "f32[3] [0.125, 0.375, 0.5]");
  const auto g = pmap([](Array x) { return psum(x, "batch"); }, {.axis_name = "batch"});
  EXPECT_TEXT(g(ones({8, 1})), "f32[8,1] [[8], [8], [8], [8], [8], [8], [8], [8]]");
}

TEST(Pmap, AxesMayBeSelected) {
  const auto f = [](Array x, Array shared) { return x * shared + axis_index("devices"); };
  const Array x = reshape(arange(6), {3, 2}), shared = array({10, 20, 30});
  EXPECT_TEXT(pmap(f, {.in_axes = {1, std::nullopt}})(x, shared), "i32[2,3] [[0, 40, 120], [11, 61, 151]]");
  EXPECT_TEXT(pmap(f, {.in_axes = {1, std::nullopt}, .out_axes = 1})(x, shared),
              "i32[3,2] [[0, 11], [40, 61], [120, 151]]");
}

TEST(Pmap, DonatesItsArguments) {
  const auto f = pmap([](Array p, Array g) { return p - pmean(g, "devices"); }, {.donate = {0}});
  Array p = ones({2, 3});
  const Array g = reshape(arange(6.f), {2, 3});
  const Array q = f(p, g);
  EXPECT_TEXT(q, "f32[2,3] [[-0.5, -1.5, -2.5], [-0.5, -1.5, -2.5]]");
  EXPECT_THROWS(p.to_vector<float>(), Error, "donated");
}

// One lane holds the elements of all devices, so nothing has to be distributed.
TEST(Pmap, OnOneLaneArgumentsAreUsedAsTheyAre) {
  if (local_lane_count() > 1) GTEST_SKIP() << "several lanes";
  const auto doubled = [](Array x) { return x * 2.f; };
  Array x = ones({2, 3});
  const float* const memory = x.data<float>().data();
  EXPECT_EQ(pmap(doubled)(x).sharding(), jit(vmap(doubled))(x).sharding());
  const Array y = pmap(doubled, {.donate = {0}})(x);
  EXPECT_EQ(y.data<float>().data(), memory);
}

TEST(Pmap, GradientsOfCopiesAreEachDevicesOwn) {
  // Parameters with a leading device axis vary: psum of their gradients is the sum over devices, as in JAX.
  const auto step = pmap([](Array w, Array x) { return psum(grad([x](Array v) { return v * x; })(w), "devices"); });
  EXPECT_TEXT(step(array({1.f, 1.f}), array({2.f, 5.f})), "f32[2] [7, 7]");
  // Shared parameters vary, too.
  const auto shared =
      pmap([](Array w, Array x) { return grad([x](Array v) { return v * x; })(w); }, {.in_axes = {std::nullopt, 0}});
  EXPECT_TEXT(shared(Array(1.f), array({2.f, 5.f})), "f32[2] [2, 5]");
}

}  // namespace
}  // namespace lockstep
