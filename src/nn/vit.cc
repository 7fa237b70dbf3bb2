#include "lockstep/vit.h"

#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/initializers.h"
#include "lockstep/math.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "nn/plain_weights.h"

namespace lockstep {
namespace {

constexpr double kVitDeviation = 0.02;
constexpr int64_t kLargestImage = int64_t{1} << 16, kMostClasses = int64_t{1} << 24;

void check_vit_size(const char* field, int64_t value, int64_t largest) {
  if (value < 1 || value > largest) throw_error("vit: {} is {}; it must be between 1 and {}", field, value, largest);
}

int64_t patch_count(const VitConfig& c) { return (c.rows / c.patch) * (c.columns / c.patch); }

// Images -> [n, patches, patch * patch * channels].
Array patches(const VitConfig& c, const Array& images) {
  const int64_t n = images.shape(0), down = c.rows / c.patch, across = c.columns / c.patch;
  const Array grid = reshape(images, {n, down, c.patch, across, c.patch, c.channels});
  return reshape(transpose(grid, {0, 1, 3, 2, 4, 5}), {n, down * across, c.patch * c.patch * c.channels});
}

void check_vit_images(const VitConfig& c, const Array& images) {
  const bool plain = c.channels == 1 && images.rank() == 3;
  if ((images.rank() != 4 && !plain) || images.shape(1) != c.rows || images.shape(2) != c.columns ||
      (!plain && images.shape(3) != c.channels))
    throw_error("vit: the images are {}; this model takes [n, {}, {}, {}]", to_string(images.shape()), c.rows,
                c.columns, c.channels);
  if (!is_floating(images.dtype()))
    throw_error("vit: the images are {}; convert them to floating point, about -1 to 1", to_string(images.type()));
}

}  // namespace

nn::TransformerConfig VitConfig::blocks() const {
  check_vit_size("rows", rows, kLargestImage);
  check_vit_size("columns", columns, kLargestImage);
  check_vit_size("channels", channels, kLargestImage);
  check_vit_size("classes", classes, kMostClasses);
  check_vit_size("patch", patch, kLargestImage);
  if (rows % patch != 0 || columns % patch != 0)
    throw_error("vit: images of {} x {} cannot be divided into patches of {} x {}; choose a divisor of both", rows,
                columns, patch, patch);
  return nn::resolved({.width = width,
                       .heads = heads,
                       .hidden = hidden,
                       .layers = layers,
                       .feed_forward = nn::FeedForwardKind::gelu_exact,
                       .dropout = dropout});
}

void check(const VitConfig& config) { static_cast<void>(config.blocks()); }

Vit create_vit(const VitConfig& c, const Operand& key) {
  const nn::TransformerConfig blocks = c.blocks();
  const auto at_index = [&](int64_t index) { return random::fold_in(key, index); };
  const bool has_class_token = c.pool == VitConfig::Pool::class_token;
  Vit vit;
  vit.patch_embedding = {plain_lecun_normal(at_index(0), {c.patch * c.patch * c.channels, c.width}), zeros({c.width})};
  if (has_class_token) vit.class_token = initializers::normal(at_index(1), {c.width}, kVitDeviation);
  vit.position_embedding =
      initializers::normal(at_index(2), {patch_count(c) + (has_class_token ? 1 : 0), c.width}, kVitDeviation);
  vit.head = {initializers::normal(at_index(3), {c.width, c.classes}, kVitDeviation), zeros({c.classes})};
  vit.norm = nn::transformer_norm(blocks);
  const Array block_key = at_index(4);
  for (int64_t i = 0; i < c.layers; ++i)
    vit.blocks.push_back(nn::transformer_block(blocks, random::fold_in(block_key, i)));
  return vit;
}

Array apply(const VitConfig& c, const Vit& vit, const Operand& images, const nn::Mode& mode) {
  const nn::TransformerConfig blocks = c.blocks();
  check_vit_images(c, images);
  const bool has_class_token = c.pool == VitConfig::Pool::class_token;
  if (vit.class_token.has_value() != has_class_token || vit.blocks.size() != static_cast<size_t>(c.layers))
    throw_error(
        "vit: the parameters have {} blocks and {} class token, which does not fit the configuration; create "
        "them with the same configuration",
        vit.blocks.size(), vit.class_token ? "a" : "no");
  Array x = nn::apply(vit.patch_embedding, patches(c, images));
  if (vit.class_token)
    x = concatenate({broadcast_to(astype(*vit.class_token, x.dtype()), {x.shape(0), 1, c.width}), x}, 1);
  x = nn::dropout(mode, 0, x + astype(vit.position_embedding, x.dtype()), c.dropout);
  for (size_t i = 0; i < vit.blocks.size(); ++i)
    x = nn::apply(blocks, vit.blocks[i], x, mode, 1 + 3 * static_cast<int64_t>(i));
  x = nn::apply(blocks, vit.norm, x);
  return nn::apply(vit.head, vit.class_token ? at(x, 0, 1) : mean(x, 1));
}

}  // namespace lockstep
