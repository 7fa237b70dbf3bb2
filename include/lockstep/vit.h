// Vit: a vision transformer for classification. Images are divided into square patches; each becomes a token.
//
//   VitConfig config{.rows = 28, .columns = 28};
//   Vit vit = create_vit(config, random::key(0));
//   Array logits = apply(config, vit, images, mode);  // [n, 28, 28] -> [n, 10]
//
// Safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/operand.h"
#include "lockstep/transformer.h"

namespace lockstep {

struct VitConfig {
  enum class Pool : uint8_t {
    mean,        // the classifier reads the mean of all tokens
    class_token  // the classifier reads one more token, which has a learned embedding
  };

  int64_t rows = 28, columns = 28, channels = 1;  // of an image
  int64_t classes = 10;
  int64_t patch = 4;    // rows and columns of a patch; divides those of an image
  int64_t layers = 6;   // number of blocks
  int64_t heads = 3;    // divides `width`
  int64_t width = 192;  // features of a token
  int64_t hidden = 0;   // features inside a feed-forward layer; 0: 4 * width
  Pool pool = Pool::mean;
  double dropout = 0;  // in training: after the embedding, on attention weights, and on what each layer adds

  // The configuration of the blocks: layer norms, exact gelu, biases. Throws Error where check() does.
  nn::TransformerConfig blocks() const;
};

// Throws Error, naming the field, when a value is out of range or two do not fit.
void check(const VitConfig& config);

struct Vit {
  nn::Linear patch_embedding;  // [patch * patch * channels, width]; the rows are in the order of [row, column, channel]
  std::optional<Array> class_token;  // [width]
  Array position_embedding;          // [tokens, width]; the class token is the first
  std::vector<nn::TransformerBlock> blocks;
  nn::TransformerNorm norm;
  nn::Linear head;  // [width, classes]
};

// Normal with deviation 0.02 (LeCun-normal for patches), residual layers divided by sqrt(2 * layers); zero biases.
Vit create_vit(const VitConfig& config, const Operand& key);

// Images [n, rows, columns, channels], or [n, rows, columns] with one channel, in the compute type -> logits
// [n, classes] of the same type.
Array apply(const VitConfig& config, const Vit& vit, const Operand& images, const nn::Mode& mode);

}  // namespace lockstep
