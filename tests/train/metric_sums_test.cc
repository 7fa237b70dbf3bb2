// Metrics and counts of integers are exact, however large their sums are.
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include "lockstep/engine.h"
#include "lockstep/task.h"
#include "train/eight_devices.h"

namespace lockstep {
namespace {

struct Offset {
  Array w;
};
struct Values {
  Array large, weight;
};

constexpr int64_t kMetricExamples = 16, kMetricValues = int64_t{1} << 21;  // 2^25 values of all examples
constexpr int64_t kLargeMetric = (int64_t{1} << 33) + 1;

// `share`: of values that are true, all but one. `large`: integers beyond 2^31, `weighted` by integers. `small` fits i32,
// its sum does not.
Task counting_task() {
  return make_task<Values>(
      "counting", [](const Array&) { return Offset{zeros({})}; },
      [](const Offset& p, const Values& batch, const nn::Mode&) -> TaskResult {
        const Array rows = astype(batch.large, i32);  // 0, 1, ...
        const Array many = broadcast_to(expand_dims(rows, 1), {rows.shape(0), kMetricValues});
        const Array share = logical_or(many > 0, arange(kMetricValues) > 0);
        const Array wide = batch.large + kLargeMetric;
        TaskResult out{.loss = square(p.w + 1) + 0 * astype(rows, f32)};
        out.metrics = {{"share", share},
                       {"weighted share", {share, ones_like(share)}},
                       {"large", wide},
                       {"weighted large", {wide, batch.weight}},
                       {"small", full({rows.shape(0), 4}, (int64_t{1} << 30) + 1, i32)}};
        out.counts = {{"large", stack({wide, wide * 2}, 1)}};
        return out;
      });
}

SourcePtr counting_data() {
  std::vector<int64_t> rows;
  std::vector<int32_t> weights;
  for (int64_t i = 0; i < kMetricExamples; ++i) {
    rows.push_back(i);
    weights.push_back(static_cast<int32_t>(i % 3));
  }
  return array_source(
      {{"large", Array::from(rows, {kMetricExamples})}, {"weight", Array::from(weights, {kMetricExamples})}});
}

std::map<std::string, double> wanted_means() {
  double large = 0, weighted = 0, weights = 0;
  for (int64_t i = 0; i < kMetricExamples; ++i) {
    large += static_cast<double>(i + kLargeMetric);
    weighted += static_cast<double>((i + kLargeMetric) * (i % 3));
    weights += static_cast<double>(i % 3);
  }
  const auto count = static_cast<double>(kMetricExamples * kMetricValues);
  return {{"share", (count - 1) / count},
          {"weighted share", (count - 1) / count},
          {"large", large / kMetricExamples},
          {"weighted large", weighted / weights},
          {"small", static_cast<double>((int64_t{1} << 30) + 1)}};
}

void expect_exact(const Scalars& metrics, const std::string& where) {
  const std::map<std::string, double> wanted = wanted_means();
  size_t found = 0;
  for (const auto& [name, value] : metrics)
    if (const auto at = wanted.find(name); at != wanted.end()) {
      EXPECT_EQ(value, at->second) << name << where;
      ++found;
    }
  EXPECT_EQ(found, wanted.size()) << where;
}

TEST(MetricSums, OfIntegersAreExactInEvaluationsAndSteps) {
  const SourcePtr data = counting_data();
  for (const int64_t devices : {1, 4}) {
    EngineOptions options{.mesh = make_mesh({{"data", devices}}), .optimizer = {.kind = Optimizer::Kind::sgd}};
    const std::string where = " on " + std::to_string(devices) + " devices";
    Engine engine(counting_task(), options);
    TrainState state = engine.create_state();
    for (const int64_t batch : {kMetricExamples, kMetricExamples / 2}) {
      const EvalResult result = engine.evaluate(state, data, batch);
      expect_exact(result.metrics, where);
      EXPECT_EQ(result.counts.at("large"),
                (std::vector<int64_t>{kLargeMetric * kMetricExamples + 120, 2 * kLargeMetric * kMetricExamples + 240}));
    }
    Loader loader(data, {.batch_size = kMetricExamples});
    expect_exact(engine.step(state, loader, loader.next()).metrics, " of a step" + where);
  }
}

TEST(MetricSums, OfIntegersAreExactOverMicroBatches) {
  const SourcePtr data = counting_data();
  Engine engine(counting_task(), {.accumulate = 2, .optimizer = {.kind = Optimizer::Kind::sgd}});
  TrainState state = engine.create_state();
  Loader loader(data, {.batch_size = kMetricExamples});
  expect_exact(engine.step(state, loader, loader.next()).metrics, " of micro-batches");
}

}  // namespace
}  // namespace lockstep
