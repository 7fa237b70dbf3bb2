// All layers compute in the type of their input.
#include <functional>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "lockstep/nn.h"
#include "lockstep/resnet.h"
#include "lockstep/transformer.h"

namespace lockstep {
namespace {

template <class Layer>
Layer in_type(const Layer& layer, DType dtype) {
  return tree_map([&](const Array& a) { return astype(a, dtype); }, layer);
}

// The results of a layer with weights of a type.
struct LayerCase {
  const char* name;
  Shape input;
  std::function<std::vector<Array>(DType weights, const Array& x)> apply;
};

std::vector<LayerCase> layer_cases() {
  const Array key = random::key(1);
  const nn::TransformerConfig config{.width = 4, .heads = 2, .rotary = true};
  return {
      {"dense",
       {2, 3},
       [=](DType w, const Array& x) -> std::vector<Array> { return {nn::apply(in_type(nn::dense(key, 3, 4), w), x)}; }},
      {"linear",
       {2, 3},
       [=](DType w, const Array& x) -> std::vector<Array> {
         return {nn::apply(in_type(nn::linear(key, 3, 4), w), x)};
       }},
      {"linear without bias",
       {2, 3},
       [=](DType w, const Array& x) -> std::vector<Array> {
         return {nn::apply(in_type(nn::linear(key, 3, 4, false), w), x)};
       }},
      {"conv2d",
       {2, 5, 5, 3},
       [=](DType w, const Array& x) -> std::vector<Array> {
         return {nn::apply(in_type(nn::conv2d(key, 3, 3, 4), w), x)};
       }},
      {"layer norm",
       {2, 3},
       [=](DType w, const Array& x) -> std::vector<Array> { return {nn::apply(in_type(nn::layer_norm(3), w), x)}; }},
      {"rms norm",
       {2, 3},
       [=](DType w, const Array& x) -> std::vector<Array> { return {nn::apply(in_type(nn::rms_norm(3), w), x)}; }},
      {"group norm",
       {2, 5, 4},
       [=](DType w, const Array& x) -> std::vector<Array> { return {nn::apply(in_type(nn::group_norm(4, 2), w), x)}; }},
      {"batch norm",
       {2, 3},
       [=](DType w, const Array& x) -> std::vector<Array> {
         nn::StateUpdates updates;
         const auto layer = in_type(nn::batch_norm(3), w);
         return {nn::apply(layer, x, {}), nn::apply(layer, x, {.training = true, .updates = &updates})};
       }},
      {"gru",
       {2, 3, 4},
       [=](DType w, const Array& x) -> std::vector<Array> {
         const auto [outputs, last] = nn::apply(in_type(nn::gru(key, 4, 5), w), x);
         return {outputs, last};
       }},
      {"lstm",
       {2, 3, 4},
       [=](DType w, const Array& x) -> std::vector<Array> {
         const auto [outputs, last] = nn::apply(in_type(nn::lstm(key, 4, 5), w), x);
         return {outputs, last.hidden, last.cell};
       }},
      {"transformer block",
       {2, 3, 4},
       [=](DType w, const Array& x) -> std::vector<Array> {
         return {nn::apply(config, in_type(nn::transformer_block(config, key), w), x, {}, 0)};
       }},
      {"dropout",
       {2, 3},
       [=](DType, const Array& x) -> std::vector<Array> {
         return {nn::dropout({.training = true, .key = key}, 0, x, 0.5)};
       }},
  };
}

TEST(LayerTypes, ResultsHaveTheTypeOfTheInput) {
  for (const LayerCase& each : layer_cases())
    for (const DType weights : {f32, bf16, f64})
      for (const DType dtype : {bf16, f16, f32, f64})
        for (const Array& y : each.apply(weights, ones(each.input, dtype)))
          EXPECT_EQ(y.dtype(), dtype) << each.name << " with weights " << name(weights);
}

TEST(LayerTypes, WeightsAreConvertedToTheTypeOfTheInput) {
  for (const LayerCase& each : layer_cases()) {
    const Array x = random::normal(random::key(3), each.input);
    const std::vector<Array> narrow = each.apply(f32, astype(x, bf16)), wide = each.apply(f32, x);
    for (size_t i = 0; i < wide.size(); ++i)
      if (std::string(each.name) != "dropout") EXPECT_ELEMENTS(narrow[i], wide[i].to_vector<double>(), 0.1);
  }
}

TEST(LayerTypes, IntegersCountAsTheTypeOfTheWeights) {
  for (const LayerCase& each : layer_cases()) {
    const std::string layer = each.name;
    if (layer == "dropout" || layer == "transformer block") continue;
    const bool norm = layer.ends_with("norm");  // in f32
    for (const Array& y : each.apply(bf16, ones(each.input, i32))) EXPECT_EQ(y.dtype(), norm ? f32 : bf16) << layer;
  }
  const auto embedding = in_type(nn::embedding(random::key(1), 4, 2), bf16);
  EXPECT_EQ(nn::apply(embedding, array({1, 2})).dtype(), bf16);
}

}  // namespace
}  // namespace lockstep
