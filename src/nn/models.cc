#include "lockstep/models.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/names.h"
#include "lockstep/create.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/resnet.h"
#include "lockstep/vit.h"
#include "nn/plain_weights.h"

namespace lockstep {
namespace {

Array layer_key(const Array& key, size_t layer) { return random::fold_in(key, static_cast<int64_t>(layer)); }

// Throws Error unless these are images the model was built for.
void check_images(const char* model, const Array& images, const ImageShape& s) {
  const Shape without = {images.rank() > 0 ? images.shape(0) : 0, s.rows, s.cols};
  Shape with = without;
  with.push_back(s.channels);
  if (images.shape() == with || (s.channels == 1 && images.shape() == without)) return;
  throw_error("{}: the images are {}; this model takes [n, {}, {}{}]", model, to_string(images.shape()), s.rows, s.cols,
              s.channels == 1 ? "" : fmt::format(", {}", s.channels));
}

// `sizes` from the pixels to the classes.
Model mlp(const char* name, const std::vector<int64_t>& sizes, Array (*activation)(const Operand&),
          Array (*weights)(const Array&, const Shape&, DType), const ImageShape& shape, double dropout) {
  const auto init = [=](const Array& key) {
    MlpParams params;
    for (size_t i = 0; i + 1 < sizes.size(); ++i)
      params.dense.push_back({weights(layer_key(key, i), {sizes[i], sizes[i + 1]}, f32), zeros({sizes[i + 1]})});
    return params;
  };
  const auto logits = [=](const MlpParams& params, const Array& images, const nn::Mode& mode) {
    check_images(name, images, shape);
    Array x = nn::flatten(images);
    for (size_t i = 0; i + 1 < params.dense.size(); ++i) x = activation(nn::apply(params.dense[i], x));
    return nn::apply(params.dense.back(), nn::dropout(mode, 0, x, dropout));
  };
  return make_model(name, init, logits);
}

Model cnn(const ImageShape& shape, double dropout) {
  constexpr int64_t kFirst = 32, kSecond = 64, kHidden = 128;
  const int64_t rows = shape.rows / 2 / 2, cols = shape.cols / 2 / 2;
  if (rows < 1 || cols < 1)
    throw_error("cnn: images of {} x {} leave nothing after two 2 x 2 pools; they must be at least 4 x 4", shape.rows,
                shape.cols);
  const auto init = [=](const Array& key) {
    return CnnParams{.conv = {nn::conv2d(layer_key(key, 0), 5, shape.channels, kFirst),
                              nn::conv2d(layer_key(key, 1), 5, kFirst, kSecond)},
                     .dense = {nn::dense(layer_key(key, 2), rows * cols * kSecond, kHidden),
                               nn::dense(layer_key(key, 3), kHidden, shape.classes)}};
  };
  const auto logits = [=](const CnnParams& params, const Array& images, const nn::Mode& mode) {
    check_images("cnn", images, shape);
    Array x = images.rank() == 3 ? expand_dims(images, -1) : images;
    for (const nn::Conv2d& layer : params.conv) x = max_pool(relu(nn::apply(layer, x)), {.window = 2});
    x = relu(nn::apply(params.dense[0], nn::flatten(x)));
    return nn::apply(params.dense[1], nn::dropout(mode, 0, x, dropout));
  };
  return make_model("cnn", init, logits);
}

Model vit(const ImageShape& shape, const ModelOptions& options) {
  VitConfig config{.rows = shape.rows, .columns = shape.cols, .channels = shape.channels, .classes = shape.classes};
  const auto divides = [&](int64_t patch) { return shape.rows % patch == 0 && shape.cols % patch == 0; };
  for (int64_t patch = 8; !divides(config.patch); --patch) config.patch = patch;
  config.dropout = options.dropout;
  if (options.layers > 0) config.layers = options.layers;
  if (options.heads > 0) config.heads = options.heads;
  if (options.width > 0) config.width = options.width;
  check(config);
  return make_model(
      "vit", [config](const Array& key) { return create_vit(config, key); },
      [config](const Vit& params, const Array& images, const nn::Mode& mode) {
        return apply(config, params, images, mode);
      });
}

Model resnet18(const ImageShape& shape, double dropout) {
  if (dropout != 0) throw_error("find_model: resnet18 has no dropout, but it is {}; set it to 0", dropout);
  ResnetConfig config;
  config.channels = shape.channels;
  config.classes = shape.classes;
  return make_model(
      "resnet18", [config](const Array& key) { return create_resnet(config, key); },
      [config](const Resnet& params, const Array& images, const nn::Mode& mode) {
        return apply(config, params, images, mode);
      });
}

}  // namespace

Model find_model(std::string_view name, const ImageShape& shape, const ModelOptions& options) {
  const double dropout = options.dropout;
  if (shape.rows < 1 || shape.cols < 1 || shape.classes < 1 || shape.channels < 1)
    throw_error("find_model: images of {} x {}{} in {} classes; all must be positive", shape.rows, shape.cols,
                shape.channels == 1 ? "" : fmt::format(" x {}", shape.channels), shape.classes);
  if (!(dropout >= 0 && dropout < 1))
    throw_error("find_model: the dropout is {}; it must be at least 0 and less than 1", dropout);
  if (name != "vit" && (options.layers != 0 || options.heads != 0 || options.width != 0))
    throw_error("find_model: {} has no layers, heads or width to choose; leave them 0", name);
  const int64_t pixels = shape.rows * shape.cols * shape.channels;
  if (name == "mlp") return mlp("mlp", {pixels, 256, 128, shape.classes}, relu, plain_he_normal, shape, dropout);
  if (name == "mlp1024")
    return mlp("mlp1024", {pixels, 1024, 1024, shape.classes}, tanh, plain_glorot_normal, shape, dropout);
  if (name == "cnn") return cnn(shape, dropout);
  if (name == "vit") return vit(shape, options);
  if (name == "resnet18") return resnet18(shape, dropout);
  throw_unknown_name("model", name, model_names());
}

std::vector<std::string> model_names() { return {"mlp", "mlp1024", "cnn", "vit", "resnet18"}; }

}  // namespace lockstep
