#include "lockstep/vit.h"

#include <cmath>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "lockstep/losses.h"
#include "lockstep/optimizers.h"
#include "nn/host_layers.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

VitConfig small_vit(VitConfig::Pool pool = VitConfig::Pool::mean) {
  return {.rows = 4,
          .columns = 6,
          .channels = 2,
          .classes = 3,
          .patch = 2,
          .layers = 2,
          .heads = 2,
          .width = 8,
          .pool = pool};
}

Array vit_images(int64_t n) { return random::normal(random::key(8), {n, 4, 6, 2}); }

TEST(Vit, PatchEmbeddingIsAConvolutionWithStride) {
  const VitConfig config = small_vit();
  Vit vit = create_vit(config, random::key(1));
  vit.blocks.clear();
  VitConfig no_blocks = config;
  no_blocks.layers = 1;
  // One block that adds nothing: its last layers are zero.
  vit.blocks.push_back(nn::transformer_block(config.blocks(), random::key(2)));
  vit.blocks[0].attention.projection.w = zeros({8, 8});
  vit.blocks[0].feed_forward.down.w = zeros({32, 8});
  const Array images = vit_images(2);
  const Array filters = reshape(vit.patch_embedding.w, {2, 2, 2, 8});
  const Array grid = conv2d(images, filters, {.stride = 2, .padding = "VALID"}) + *vit.patch_embedding.b;
  const Array tokens = reshape(grid, {2, 6, 8}) + vit.position_embedding;
  const Array features = mean(nn::apply(nn::layer_norm(8), tokens), 1);
  EXPECT_ELEMENTS(apply(no_blocks, vit, images, {}), nn::apply(vit.head, features).to_vector<double>(), 1e-5);
}

TEST(Vit, ClassTokenIsTheFirst) {
  const VitConfig config = small_vit(VitConfig::Pool::class_token);
  const Vit vit = create_vit(config, random::key(1));
  EXPECT_EQ(vit.position_embedding.shape(), (Shape{7, 8}));
  Array x = nn::apply(vit.patch_embedding,
                      reshape(transpose(reshape(vit_images(2), {2, 2, 2, 3, 2, 2}), {0, 1, 3, 2, 4, 5}), {2, 6, 8}));
  x = concatenate({broadcast_to(*vit.class_token, {2, 1, 8}), x}, 1) + vit.position_embedding;
  for (const nn::TransformerBlock& block : vit.blocks) x = nn::apply(config.blocks(), block, x, {}, 0);
  x = nn::apply(nn::LayerNorm{vit.norm.scale, *vit.norm.bias}, at(x, 0, 1));
  EXPECT_ELEMENTS(apply(config, vit, vit_images(2), {}), nn::apply(vit.head, x).to_vector<double>(), 1e-5);
}

TEST(Vit, TakesGrayImagesWithoutAChannelDimension) {
  const VitConfig config{.rows = 8, .columns = 8, .layers = 1, .heads = 2, .width = 16};
  const Vit vit = create_vit(config, random::key(1));
  const Array images = random::normal(random::key(2), {3, 8, 8});
  const Array logits = apply(config, vit, images, {});
  EXPECT_EQ(logits.type(), (Type{f32, {3, 10}}));
  EXPECT_EQ(logits.to_vector<float>(), apply(config, vit, expand_dims(images, 3), {}).to_vector<float>());
  EXPECT_EQ(apply(config, vit, astype(images, bf16), {.compute = bf16}).dtype(), bf16);
}

TEST(Vit, OverfitsOneBatch) {
  VitConfig config = small_vit(VitConfig::Pool::class_token);
  config.dropout = 0.05;
  const Optimizer adamw{.schedule = {.peak = 1e-2}, .weight_decay = 0};
  const Array images = vit_images(8), labels = random::randint(random::key(3), {8}, 0, 3);
  const auto step = jit([&](Vit vit, OptimizerState state) {
    const nn::Mode mode{.training = true, .key = random::fold_in(random::key(0), state.step)};
    auto [value, grads] =
        value_and_grad([&](Vit v) { return mean(softmax_cross_entropy(apply(config, v, images, mode), labels)); })(vit);
    auto [next, next_state] = update(adamw, vit, grads, state);
    return std::tuple{next, next_state, value};
  });
  Vit vit = create_vit(config, random::key(5));
  OptimizerState state = create_state(adamw, vit);
  Array loss;
  for (int i = 0; i < 60; ++i) std::tie(vit, state, loss) = step(vit, state);
  EXPECT_LT(mean(softmax_cross_entropy(apply(config, vit, images, {}), labels)).item<float>(), 0.1F);
}

TEST(Vit, InvalidValuesAreRejected) {
  VitConfig config = small_vit();
  const Vit vit = create_vit(config, random::key(1));
  EXPECT_ERROR(apply(config, vit, ones({2, 4, 6}), {}), "vit: the images are [2, 4, 6]; this model takes [n, 4, 6, 2]");
  EXPECT_ERROR(apply(config, vit, ones({2, 4, 6, 2}, u8), {}), "convert them to floating point");
  EXPECT_ERROR(apply(small_vit(VitConfig::Pool::class_token), vit, vit_images(1), {}), "2 blocks and no class token");
  config.patch = 3;
  EXPECT_ERROR(check(config), "vit: images of 4 x 6 cannot be divided into patches of 3 x 3; choose a divisor of both");
  config.patch = 0;
  EXPECT_ERROR(check(config), "vit: patch is 0");
  config = small_vit();
  config.heads = 3;
  EXPECT_ERROR(check(config), "width is 8, heads is 3");
}

}  // namespace
}  // namespace lockstep
