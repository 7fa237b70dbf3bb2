// Resnet: residual networks for small images (the CIFAR form: a 3x3 stem with stride 1, no max pool). The default
// configuration is resnet18.
//
//   ResnetConfig config{.channels = 3};
//   Resnet net = create_resnet(config, random::key(0));
//   Array logits = apply(config, net, images, mode);  // [n, 32, 32, 3] -> [n, 10]
//
// Safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/nn.h"
#include "lockstep/operand.h"

namespace lockstep {

struct ResnetConfig {
  int64_t channels = 1;  // of an image
  int64_t classes = 10;
  // The channels of each stage. Every stage but the first halves rows and columns.
  std::vector<int64_t> widths = {64, 128, 256, 512};
  int64_t blocks = 2;                // per stage
  bool zero_residual_scale = false;  // start the last scale of each block at 0, so that blocks start as the identity
};

// Throws Error, naming the field, when a value is out of range.
void check(const ResnetConfig& config);

// y = norm(convolution(x)). The filters are [kh, kw, in, out]; there is no bias, because the norm has one.
struct NormedConv {
  Array w;
  nn::BatchNorm norm;
};
// relu(second(relu(first(x))) + shortcut(x)), 3x3 filters. The shortcut is the identity, or a 1x1 convolution where the
// shape changes. `first` has the stride.
struct ResidualBlock {
  NormedConv first, second;
  std::optional<NormedConv> shortcut;
};
struct Resnet {
  NormedConv stem;
  std::vector<std::vector<ResidualBlock>> stages;
  nn::Linear head;  // [widths.back(), classes]
};

// Filters: He-normal by fan-out. Head: uniform up to 1 / sqrt(inputs), as in PyTorch. Scales 1, biases 0.
Resnet create_resnet(const ResnetConfig& config, const Operand& key);

// Images [n, rows, columns, channels], or [n, rows, columns] with one channel, in the compute type -> logits
// [n, classes] of the same type. In training, mode.update() gets the next running values of the batch norms.
Array apply(const ResnetConfig& config, const Resnet& net, const Operand& images, const nn::Mode& mode);

}  // namespace lockstep
