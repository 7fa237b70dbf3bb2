#include "lockstep/models.h"

#include <cmath>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "lockstep/losses.h"
#include "lockstep/optimizers.h"
#include "lockstep/precision.h"
#include "support/models.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

int64_t parameter_count(const Model& model) {
  int64_t n = 0;
  for (const Type& t : model.types) n += count(t.shape);
  return n;
}

TEST(Models, HaveTheExpectedPathsAndSizes) {
  EXPECT_EQ(model_names(), (std::vector<std::string>{"mlp", "mlp1024", "cnn", "vit", "resnet18"}));
  const Model mlp = find_model("mlp");
  EXPECT_EQ(mlp.name, "mlp");
  EXPECT_EQ(mlp.paths,
            (std::vector<std::string>{"dense/0/w", "dense/0/b", "dense/1/w", "dense/1/b", "dense/2/w", "dense/2/b"}));
  EXPECT_EQ(mlp.types[2], (Type{f32, {256, 128}}));
  EXPECT_EQ(parameter_count(mlp), 235146);
  EXPECT_EQ(parameter_count(find_model("mlp1024")), 1863690);
  const Model cnn = find_model("cnn");
  EXPECT_EQ(cnn.paths, (std::vector<std::string>{"conv/0/w", "conv/0/b", "conv/1/w", "conv/1/b", "dense/0/w",
                                                 "dense/0/b", "dense/1/w", "dense/1/b"}));
  EXPECT_EQ(cnn.types[2], (Type{f32, {5, 5, 32, 64}}));
  EXPECT_EQ(cnn.types[4], (Type{f32, {3136, 128}}));
}

TEST(Models, InitReturnsTheDeclaredTypes) {
  for (const std::string& name : model_names()) {
    const Model model = find_model(name);
    const std::vector<Array> params = model.init(random::key(1));
    ASSERT_EQ(params.size(), model.types.size());
    for (size_t i = 0; i < params.size(); ++i)
      EXPECT_EQ(params[i].type(), model.types[i]) << name << " " << model.paths[i];
  }
}

TEST(Models, MatchTheReferenceModels) {
  const Array images = random::uniform(random::key(3), {3, 28, 28});
  for (const char* name : {"mlp", "cnn"}) {
    const Model model = find_model(name);
    const models::Params reference = models::init(name, 42);
    const std::vector<Array> params = model.init(random::key(42)), wanted = tree_leaves(reference);
    ASSERT_EQ(params.size(), wanted.size());
    for (size_t i = 0; i < params.size(); ++i)
      EXPECT_EQ(params[i].to_vector<float>(), wanted[i].to_vector<float>()) << name << " " << model.paths[i];
    EXPECT_ELEMENTS(model.logits(params, images, {}),
                    models::logits(reference, reshape(images, {3, 784})).to_vector<double>(), 1e-5);
  }
}

TEST(Models, Mlp1024UsesTanhAndGlorotWeights) {
  const Model model = find_model("mlp1024");
  const std::vector<Array> p = model.init(random::key(1));
  EXPECT_NEAR(standard_deviation(p[2]).item<double>(), std::sqrt(2.0 / 2048), 1e-4);
  const Array x = random::uniform(random::key(3), {2, 28, 28});
  const Array hidden = tanh(dot(tanh(dot(reshape(x, {2, 784}), p[0]) + p[1]), p[2]) + p[3]);
  EXPECT_ELEMENTS(model.logits(p, x, {}), (dot(hidden, p[4]) + p[5]).to_vector<double>(), 1e-5);
}

TEST(Models, AdaptToTheImages) {
  for (const std::string& name : model_names()) {
    const Model model = find_model(name, {.rows = 15, .cols = 9, .classes = 3});
    const std::vector<Array> params = model.init(random::key(1));
    EXPECT_EQ(model.logits(params, ones({2, 15, 9}), {}).type(), (Type{f32, {2, 3}})) << name;
  }
  // 15 -> 7 -> 3 rows, 9 -> 4 -> 2 columns.
  EXPECT_EQ(find_model("cnn", {.rows = 15, .cols = 9, .classes = 3}).types[4], (Type{f32, {3 * 2 * 64, 128}}));
  EXPECT_EQ(find_model("cnn", {.rows = 4, .cols = 4}).types[4], (Type{f32, {64, 128}}));
}

TEST(Models, VitDividesTheImagesIntoPatches) {
  const auto patch_inputs = [](const ImageShape& shape) { return find_model("vit", shape).types[0].shape[0]; };
  EXPECT_EQ(patch_inputs({}), 4 * 4);
  EXPECT_EQ(patch_inputs({.rows = 32, .cols = 32, .channels = 3}), 4 * 4 * 3);
  EXPECT_EQ(patch_inputs({.rows = 30, .cols = 18}), 6 * 6);
  EXPECT_EQ(patch_inputs({.rows = 11, .cols = 7}), 1);
  const Model narrow = find_model("vit", {}, {.layers = 2, .heads = 2, .width = 16});
  EXPECT_EQ(narrow.types[0], (Type{f32, {16, 16}}));
}

TEST(Models, ComputeInTheTypeOfTheirParameters) {
  for (const std::string& name : model_names()) {
    const Model model = find_model(name, {.rows = 8, .cols = 8});
    const std::vector<Array> params = cast_floating(model.init(random::key(1)), bf16);
    EXPECT_EQ(model.logits(params, ones({2, 8, 8}, bf16), {}).dtype(), bf16) << name;
  }
}

TEST(Models, DropoutIsAppliedOnlyInTraining) {
  for (const char* name : {"mlp", "mlp1024", "cnn", "vit"}) {
    const ImageShape small{.rows = 8, .cols = 8};
    const Model with = find_model(name, small, {.dropout = 0.5}), without = find_model(name, small);
    const std::vector<Array> params = with.init(random::key(1));
    const Array images = random::uniform(random::key(2), {2, 8, 8});
    const auto logits = [&](const Model& m, const nn::Mode& mode) {
      return m.logits(params, images, mode).to_vector<float>();
    };
    const nn::Mode training{.training = true, .key = random::key(3)};
    EXPECT_EQ(logits(with, {}), logits(without, {}));
    EXPECT_EQ(logits(without, training), logits(without, {}));
    EXPECT_NE(logits(with, training), logits(with, {}));
    EXPECT_EQ(logits(with, training), logits(with, training));
  }
}

TEST(Models, InvalidValuesAreRejected) {
  EXPECT_ERROR(find_model("cn"),
               "model: unknown value \"cn\"; choose mlp, mlp1024, cnn, vit or resnet18; did you mean \"cnn\"?");
  EXPECT_ERROR(find_model("resnet50"), "did you mean \"resnet18\"?");
  EXPECT_ERROR(find_model("resnet18", {}, {.dropout = 0.5}), "find_model: resnet18 has no dropout, but it is 0.5");
  EXPECT_ERROR(find_model("cnn", {.rows = 3, .cols = 28}),
               "cnn: images of 3 x 28 leave nothing after two 2 x 2 pools; they must be at least 4 x 4");
  EXPECT_ERROR(find_model("mlp", {.classes = 0}), "find_model: images of 28 x 28 in 0 classes; all must be positive");
  EXPECT_ERROR(find_model("mlp", {}, {.dropout = 1}),
               "find_model: the dropout is 1; it must be at least 0 and less than 1");
  const Model mlp = find_model("mlp");
  EXPECT_ERROR(mlp.logits(mlp.init(random::key(0)), ones({2, 30}), {}),
               "mlp: the images are [2, 30]; this model takes [n, 28, 28]");
  const Model cnn = find_model("cnn");
  EXPECT_ERROR(cnn.logits(cnn.init(random::key(0)), ones({2, 28, 27}), {}), "cnn: the images are [2, 28, 27]");
}

// The example of docs/reference/nn.md.
struct Net {
  nn::Dense hidden;
  nn::LayerNorm norm;
  nn::Dense out;
};

Net create(const Array& key) {
  return {nn::dense(random::fold_in(key, 0), 64, 32), nn::layer_norm(32), nn::dense(random::fold_in(key, 1), 32, 10)};
}

Array logits(const Net& net, const Array& x, const nn::Mode& mode = {}) {
  const Array h = relu(nn::apply(net.norm, nn::apply(net.hidden, nn::flatten(x))));
  return nn::apply(net.out, nn::dropout(mode, 0, h, 0.1));
}

TEST(Models, DocumentationExampleLearns) {
  const Array images = random::normal(random::key(1), {64, 8, 8}),
              labels = random::randint(random::key(2), {64}, 0, 10);
  const Optimizer adamw{
      .schedule = {.kind = Schedule::Kind::warmup_cosine, .peak = 1e-2, .warmup_steps = 10, .total_steps = 60},
      .weight_decay = 1e-2,
      .clip_norm = 1};
  const auto step = jit(
      [&](Net net, OptimizerState state, Array x, Array y) {
        const nn::Mode mode{.training = true, .key = random::fold_in(random::key(0), state.step)};
        const auto loss = [&](Net n) {
          return mean(softmax_cross_entropy(logits(n, x, mode), y, {.label_smoothing = 0.1}));
        };
        auto [value, grads] = value_and_grad(loss)(net);
        auto [next, next_state] = update(adamw, net, grads, state);
        return std::tuple{next, next_state, value};
      },
      {.donate = {0, 1}});
  Net net = create(random::key(7));
  OptimizerState state = create_state(adamw, net);
  Array loss;
  for (int i = 0; i < 60; ++i) std::tie(net, state, loss) = step(net, state, images, labels);
  EXPECT_LT(loss.item<double>(), 1);
  EXPECT_GT(mean(astype(is_correct(logits(net, images), labels), f32)).item<double>(), 0.95);
}

TEST(Models, AnyTreeCanBeAModel) {
  const Model model = make_model("net", create, [](const Net& net, const Array& images, const nn::Mode& mode) {
    return logits(net, images, mode);
  });
  EXPECT_EQ(model.paths,
            (std::vector<std::string>{"hidden/w", "hidden/b", "norm/scale", "norm/bias", "out/w", "out/b"}));
  const std::vector<Array> params = model.init(random::key(7));
  const Array images = random::normal(random::key(1), {3, 8, 8});
  EXPECT_EQ(model.logits(params, images, {}).to_vector<float>(),
            logits(create(random::key(7)), images).to_vector<float>());
}

}  // namespace
}  // namespace lockstep
