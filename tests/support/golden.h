// The reference training runs of tests/data_files/training.json: reading them, and replaying them with a step of any
// kind.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/brief.h"
#include "support/models.h"

namespace lockstep::golden {

// MNIST, or null if it is not available.
inline const Dataset* mnist() {
  static const Dataset* data = []() -> const Dataset* {
    try {
      return new Dataset(load_dataset("mnist"));
    } catch (const IoError& e) {
      std::fprintf(stderr, "%s\n", e.what());
      return nullptr;
    }
  }();
  return data;
}

struct Case {
  std::string model, optimizer;
  float rate;
  int64_t batch;
  uint64_t seed;
  std::vector<double> losses, norms;
  size_t steps_in_epoch = 0;  // 0: not run to the end of the epoch
  double accuracy = 0;        // after the epoch
};

inline constexpr int kCases = 4;

inline Case read(int i) {
  std::ifstream file(LOCKSTEP_TEST_DATA "/training.json");
  const auto json = nlohmann::json::parse(file)["cases"][static_cast<size_t>(i)];
  Case c{json["model"], json["optimizer"], json["learning_rate"], json["batch_size"],
         json["seed"],  json["losses"],    json["grad_norms"]};
  if (json.contains("steps_in_epoch")) {
    c.steps_in_epoch = json["steps_in_epoch"];
    c.accuracy = json["test_accuracy_after_one_epoch"];
  }
  return c;
}

struct Images {
  Array pixels, labels;  // u8 [n, 784], u8 [n]
};

inline Images upload(const ImageDataset& set) {
  return {Array::from(set.images, {set.count, 784}), Array::from(set.labels, {set.count})};
}

// Rows [start, start + n) as a batch.
inline models::Batch rows(const Images& set, const Array& start, int64_t n) {
  return {astype(dynamic_slice(set.pixels, {start, 0}, {n, 784}), f32) / 255.f,
          dynamic_slice(set.labels, {start}, {n})};
}

// Runs step(state, batch) -> models::Result over the first batches in file order and compares losses and gradient
// norms. Returns the last state. (Where tests are brief, three are enough: the first, what is kept of it, and again; of
// convolutions the first.)
template <class Step>
models::State replay(const Case& c, const Images& train, size_t steps, const Step& step) {
  const auto batch_at = jit([n = c.batch](Images set, Array start) { return rows(set, start, n); });
  models::State state = models::create_state(models::init(c.model, c.seed));
  for (size_t i = 0, end = brief<size_t>(steps, std::min<size_t>(steps, c.model == "cnn" ? 1 : 3)); i < end; ++i) {
    models::Result result = step(state, batch_at(train, static_cast<int64_t>(i) * c.batch));
    state = std::move(result.state);
    if (i >= c.losses.size()) continue;
    const double tolerance = i < 5 ? 2e-5 : 1e-3;
    EXPECT_NEAR(result.loss.item<double>() / c.losses[i], 1.0, tolerance) << "step " << i;
    EXPECT_NEAR(result.grad_norm.item<double>() / c.norms[i], 1.0, 10 * tolerance) << "step " << i;
  }
  return state;
}

inline double accuracy(const models::Params& params, const Images& test) {
  const auto correct = jit([](models::Params p, Images set, Array start) {
    const models::Batch b = rows(set, start, 1000);
    return sum(argmax(models::logits(p, b.image), 1) == astype(b.label, i32));
  });
  int64_t right = 0;
  const int64_t n = test.labels.size();
  for (int64_t at = 0; at < n; at += 1000) right += correct(params, test, at).item<int64_t>();
  return static_cast<double>(right) / static_cast<double>(n);
}

}  // namespace lockstep::golden
