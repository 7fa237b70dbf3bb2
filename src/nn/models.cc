#include "lockstep/models.h"

#include "base/check.h"
#include "base/names.h"
#include "lockstep/create.h"
#include "lockstep/initializers.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"

namespace lockstep {
namespace {

Array layer_key(const Array& key, size_t layer) { return random::fold_in(key, static_cast<int64_t>(layer)); }

// Throws Error unless these are images the model was built for.
void check_images(const char* model, const Array& images, const ImageShape& s) {
  if (images.rank() != 3 || images.shape(1) != s.rows || images.shape(2) != s.cols)
    throw_error("{}: the images are {}; this model takes [n, {}, {}]", model, to_string(images.shape()), s.rows,
                s.cols);
}

// `sizes` from the pixels to the classes.
Model mlp(const char* name, const std::vector<int64_t>& sizes, Array (*activation)(const Array&),
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
    return CnnParams{
        .conv = {nn::conv2d(layer_key(key, 0), 5, 1, kFirst), nn::conv2d(layer_key(key, 1), 5, kFirst, kSecond)},
        .dense = {nn::dense(layer_key(key, 2), rows * cols * kSecond, kHidden),
                  nn::dense(layer_key(key, 3), kHidden, shape.classes)}};
  };
  const auto logits = [=](const CnnParams& params, const Array& images, const nn::Mode& mode) {
    check_images("cnn", images, shape);
    Array x = expand_dims(images, -1);
    for (const nn::Conv2d& layer : params.conv) x = max_pool(relu(nn::apply(layer, x)), {.window = 2});
    x = relu(nn::apply(params.dense[0], nn::flatten(x)));
    return nn::apply(params.dense[1], nn::dropout(mode, 0, x, dropout));
  };
  return make_model("cnn", init, logits);
}

}  // namespace

Model find_model(std::string_view name, const ImageShape& shape, double dropout) {
  if (shape.rows < 1 || shape.cols < 1 || shape.classes < 1)
    throw_error("find_model: images of {} x {} in {} classes; all must be positive", shape.rows, shape.cols,
                shape.classes);
  if (!(dropout >= 0 && dropout < 1))
    throw_error("find_model: the dropout is {}; it must be at least 0 and less than 1", dropout);
  const int64_t pixels = shape.rows * shape.cols;
  if (name == "mlp")
    return mlp("mlp", {pixels, 256, 128, shape.classes}, relu, initializers::he_normal, shape, dropout);
  if (name == "mlp1024")
    return mlp("mlp1024", {pixels, 1024, 1024, shape.classes}, tanh, initializers::glorot_normal, shape, dropout);
  if (name == "cnn") return cnn(shape, dropout);
  throw_unknown_name("model", name, model_names());
}

std::vector<std::string> model_names() { return {"mlp", "mlp1024", "cnn"}; }

}  // namespace lockstep
