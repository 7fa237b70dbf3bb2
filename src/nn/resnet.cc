#include "lockstep/resnet.h"

#include <cmath>

#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/initializers.h"
#include "lockstep/math.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"

namespace lockstep {
namespace {

constexpr int64_t kLargestResnetSize = int64_t{1} << 20;

void check_resnet_size(const char* field, int64_t value) {
  if (value < 1 || value > kLargestResnetSize)
    throw_error("resnet: {} is {}; it must be between 1 and {}", field, value, kLargestResnetSize);
}

NormedConv normed_conv(const Array& key, int64_t kernel, int64_t in, int64_t out) {
  const double sd = std::sqrt(2.0 / static_cast<double>(kernel * kernel * out));
  return {initializers::normal(key, {kernel, kernel, in, out}, sd), nn::batch_norm(out)};
}

// Pads as PyTorch does, the same on both sides, also for an even number of rows with stride 2.
Array apply_conv(const NormedConv& layer, const Array& x, int64_t stride, const nn::Mode& mode) {
  const int64_t around = layer.w.shape(0) / 2;
  const Conv2dOptions options{.stride = stride, .padding = {{around, around}, {around, around}}};
  return nn::apply(layer.norm, conv2d(x, astype(layer.w, x.dtype()), options), mode);
}

Array apply_residual(const ResidualBlock& block, const Array& x, int64_t stride, const nn::Mode& mode) {
  const Array y = apply_conv(block.second, relu(apply_conv(block.first, x, stride, mode)), 1, mode);
  return relu(y + (block.shortcut ? apply_conv(*block.shortcut, x, stride, mode) : x));
}

ResidualBlock residual_block(const ResnetConfig& c, const Array& key, int64_t in, int64_t out, int64_t stride) {
  ResidualBlock block;
  block.first = normed_conv(random::fold_in(key, 0), 3, in, out);
  block.second = normed_conv(random::fold_in(key, 1), 3, out, out);
  if (c.zero_residual_scale) block.second.norm.scale = zeros({out});
  if (in != out || stride != 1) block.shortcut = normed_conv(random::fold_in(key, 2), 1, in, out);
  return block;
}

// Only the first block of a stage after the first has stride 2.
int64_t stride_of(size_t stage, size_t block) { return stage > 0 && block == 0 ? 2 : 1; }

}  // namespace

void check(const ResnetConfig& c) {
  check_resnet_size("channels", c.channels);
  check_resnet_size("classes", c.classes);
  check_resnet_size("blocks", c.blocks);
  if (c.widths.empty()) throw_error("resnet: widths is empty; give the channels of at least one stage");
  for (const int64_t width : c.widths) check_resnet_size("a width", width);
}

Resnet create_resnet(const ResnetConfig& c, const Operand& key) {
  check(c);
  Resnet net;
  net.stem = normed_conv(random::fold_in(key, 0), 3, c.channels, c.widths[0]);
  const Array stage_key = random::fold_in(key, 1);
  int64_t in = c.widths[0], index = 0;
  for (size_t stage = 0; stage < c.widths.size(); ++stage) {
    std::vector<ResidualBlock>& blocks = net.stages.emplace_back();
    for (size_t i = 0; i < static_cast<size_t>(c.blocks); ++i, in = c.widths[stage])
      blocks.push_back(
          residual_block(c, random::fold_in(stage_key, index++), in, c.widths[stage], stride_of(stage, i)));
  }
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  net.head = {random::uniform(random::fold_in(key, 2), {in, c.classes}, -bound, bound), zeros({c.classes})};
  return net;
}

Array apply(const ResnetConfig& c, const Resnet& net, const Operand& images, const nn::Mode& mode) {
  check(c);
  const bool plain = c.channels == 1 && images.rank() == 3;
  if ((images.rank() != 4 && !plain) || (!plain && images.shape(3) != c.channels))
    throw_error("resnet: the images are {}; this model takes [n, rows, columns, {}]", to_string(images.shape()),
                c.channels);
  if (!is_floating(images.dtype()))
    throw_error("resnet: the images are {}; convert them to floating point, about -1 to 1", to_string(images.type()));
  Array x = relu(apply_conv(net.stem, plain ? expand_dims(images, 3) : Array(images), 1, mode));
  for (size_t stage = 0; stage < net.stages.size(); ++stage)
    for (size_t i = 0; i < net.stages[stage].size(); ++i)
      x = apply_residual(net.stages[stage][i], x, stride_of(stage, i), mode);
  return nn::apply(net.head, mean(x, {1, 2}));
}

}  // namespace lockstep
