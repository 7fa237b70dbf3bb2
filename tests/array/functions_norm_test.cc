#include <cmath>

#include "array/near.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/jit.h"
#include "lockstep/math.h"
#include "lockstep/norm.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/vmap.h"

namespace lockstep {
namespace {

TEST(LayerNormFunction, NormalizesTheLastDimension) {
  const Array x = array({{1.f, 3.f}, {10.f, -10.f}}), scale = array({2.f, 3.f}), bias = array({10.f, 20.f});
  EXPECT_ELEMENTS(layer_norm(x, scale, bias, 0), {8, 23, 12, 17}, 1e-5);
  EXPECT_ELEMENTS(rms_norm(array({{3.f, 4.f}}), scale, 0), {6 / std::sqrt(12.5), 12 / std::sqrt(12.5)}, 1e-5);
}

TEST(LayerNormFunction, ResultHasTheTypeOfX) {
  const Array scale = ones({2}), bias = zeros({2});
  EXPECT_TEXT(layer_norm(astype(array({{1.f, 3.f}}), bf16), scale, bias), "bf16[1,2] [[-1, 1]]");
  EXPECT_TEXT(layer_norm(array({{1, 3}}), scale, bias, 0), "f32[1,2] [[-1, 1]]");
  // Scale and bias may have different types.
  EXPECT_TEXT(layer_norm(array({{1.f, 3.f}}), astype(scale, bf16), astype(bias, f64), 0), "f32[1,2] [[-1, 1]]");
  EXPECT_TEXT(rms_norm(array({{2, 2}}), astype(scale, f16), 0), "f32[1,2] [[1, 1]]");
}

TEST(LayerNormFunction, ExamplesOfVmapHaveTheirOwnParameters) {
  const Array x = reshape(sin(arange(24, f32)), {2, 3, 4}), scale = reshape(arange(8, f32), {2, 4}),
              bias = cos(reshape(arange(8, f32), {2, 4}));
  const auto loss = [](const Array& v, const Array& s, const Array& b) { return sum(square(layer_norm(v, s, b)) * v); };
  const auto gradients = grad<0, 1, 2>(loss);
  const auto [dx, dscale, dbias] = vmap([&](Array v, Array s, Array b) { return gradients(v, s, b); })(x, scale, bias);
  for (int64_t i = 0; i < 2; ++i) {
    const auto one = [&](const Array& all) { return at(all, i); };
    const auto [ex, es, eb] = gradients(one(x), one(scale), one(bias));
    EXPECT_ELEMENTS(one(dx), ex.to_vector<double>(), 1e-4);
    EXPECT_ELEMENTS(one(dscale), es.to_vector<double>(), 1e-4);
    EXPECT_ELEMENTS(one(dbias), eb.to_vector<double>(), 1e-4);
  }
}

TEST(LayerNormFunction, RejectsMismatchedOperands) {
  EXPECT_THROWS(layer_norm(ones({2, 3}), ones({2}), zeros({2})), Error,
                "layer_norm: the scale is f32[2]; for x f32[2,3] it must be floating, of shape [3]");
  EXPECT_THROWS(rms_norm(ones({2, 3}), ones({3}), -1.0), Error, "rms_norm: the epsilon is -1");
}

TEST(RotaryEmbedding, RotatesPairsOfFeatures) {
  const Array x = reshape(array({1.f, 2.f, 3.f, 4.f}), {1, 1, 1, 4});
  const double c = std::cos(2.0), s = std::sin(2.0), c2 = std::cos(0.02), s2 = std::sin(0.02);
  EXPECT_ELEMENTS(rotary_embedding(x, array({2})), {c - 3 * s, 2 * c2 - 4 * s2, 3 * c + s, 4 * c2 + 2 * s2}, 1e-6);
  EXPECT_THROWS(rotary_embedding(x, array({2.f})), Error,
                "rotary_embedding: the positions are f32[1]; they must be integers");
}

}  // namespace
}  // namespace lockstep
