// Engine: training does not depend on micro-batches, interruptions or the number of devices.
#include "lockstep/engine.h"

#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "base/file.h"
#include "base/throws.h"
#include "lane/lane.h"
#include "train/eight_devices.h"
#include "train/state.h"

namespace lockstep {
namespace {

ImageDataset digits(int64_t n) { return synthetic_digits(n, 1, 1).train; }
ImageDataset test_digits(int64_t n) { return synthetic_digits(1, n, 1).test; }

// A small model, so that tests with many runs are fast.
struct Net {
  nn::Dense hidden, out;
};
Model small_model(double dropout = 0) {
  return make_model(
      "small",
      [](const Array& key) {
        return Net{nn::dense(key, 784, 16), nn::dense(random::fold_in(key, 1), 16, 10)};
      },
      [dropout](const Net& net, const Array& x, const nn::Mode& mode) {
        const Array h = nn::dropout(mode, 0, relu(nn::apply(net.hidden, nn::flatten(x))), dropout);
        return nn::apply(net.out, h);
      });
}

EngineOptions options(Optimizer::Kind kind = Optimizer::Kind::adamw) {
  return {.optimizer = {.kind = kind, .schedule = {.peak = 1e-2}, .weight_decay = 1e-3}, .seed = 5};
}

TrainState trained(EngineOptions with, int64_t steps, int64_t batch = 50, double dropout = 0) {
  Engine engine(small_model(dropout), std::move(with));
  TrainState state = engine.create_state();
  Loader loader(digits(230), {.batch_size = batch, .seed = 3});
  engine.fit(state, loader, {.steps = steps});
  return state;
}

// An optimizer with this kind of state.
Optimizer optimizer_of(const TrainState& state) {
  return {.kind = state.optimizer.first.empty()    ? Optimizer::Kind::sgd
                  : state.optimizer.second.empty() ? Optimizer::Kind::momentum
                                                   : Optimizer::Kind::adamw};
}

void expect_same_bytes(const TrainState& a, const TrainState& b) {
  const Task task = image_task(small_model());
  const Checkpoint x = detail::to_checkpoint(a, task, optimizer_of(a)),
                   y = detail::to_checkpoint(b, task, optimizer_of(b));
  ASSERT_EQ(x.arrays.size(), y.arrays.size());
  EXPECT_EQ(x.step, y.step);
  EXPECT_EQ(x.cursor, y.cursor);
  for (size_t i = 0; i < x.arrays.size(); ++i) {
    const auto& [name, p] = x.arrays[i];
    const Array& q = y.arrays[i].second;
    ASSERT_EQ(p.type(), q.type()) << name;
    if (p.dtype() == f32)
      EXPECT_EQ(std::memcmp(p.data<float>().data(), q.data<float>().data(), static_cast<size_t>(p.type().bytes())), 0)
          << name;
    else
      EXPECT_EQ(p.to_vector<int64_t>(), q.to_vector<int64_t>()) << name;
  }
}

void expect_close(const std::vector<Array>& a, const std::vector<Array>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const std::span<const float> p = a[i].data<float>(), q = b[i].data<float>();
    ASSERT_EQ(p.size(), q.size());
    for (size_t k = 0; k < p.size(); ++k) ASSERT_NEAR(p[k], q[k], tolerance) << "parameter " << i << ", element " << k;
  }
}

TEST(Engine, LearnsAndReportsMetrics) {
  Engine engine(small_model(), options());
  TrainState state = engine.create_state();
  Loader loader(digits(1000), {.batch_size = 50, .seed = 3});
  const SourcePtr test = image_source(test_digits(300));
  const EvalResult before = engine.evaluate(state, test);
  const FitResult result = engine.fit(state, loader, {.steps = 60, .test = test});
  const EvalResult after = engine.evaluate(state, test);
  EXPECT_LT(before.metric("accuracy"), 0.4);
  EXPECT_GT(after.metric("accuracy"), 0.8);
  EXPECT_LT(after.loss, before.loss / 2);
  EXPECT_TRUE(result.alarms.empty()) << testing::PrintToString(result.alarms);
  EXPECT_TRUE(is_met({"test_accuracy", "==", after.metric("accuracy")}, result.metrics));
  EXPECT_EQ(state.step, 60);
  EXPECT_EQ(state.cursor, (Cursor{3, 0}));
}

TEST(Engine, AccumulationEqualsTheFullBatch) {
  // SGD, because Adam divides rounding errors by rounding errors where gradients vanish.
  EngineOptions full = options(Optimizer::Kind::sgd), accumulated = full;
  accumulated.accumulate = 4;
  expect_close(trained(full, 12, 128).params, trained(accumulated, 12, 128).params, 2e-6);
  // A smaller last batch (230 = 128 + 102), and one with fewer rows than micro-batches.
  accumulated.accumulate = 7;
  expect_close(trained(full, 8, 229).params, trained(accumulated, 8, 229).params, 2e-6);
}

TEST(Engine, ResultsDoNotDependOnTheDeviceCount) {
  if (local_lane_count() > 1) GTEST_SKIP() << "sums over several lanes round differently; see Sharded";
  for (const double dropout : {0.0, 0.3}) {
    EngineOptions one = options();
    one.mesh = make_mesh({{"data", 1}});
    const TrainState alone = trained(one, 9, 50, dropout);
    for (const int64_t n : {3, 8}) {
      EngineOptions many = options();
      many.mesh = make_mesh({{"data", n}});
      expect_same_bytes(alone, trained(many, 9, 50, dropout));
    }
  }
}

TEST(Engine, EvaluationUsesEveryExampleOnce) {
  const ImageDataset set = digits(97);
  std::vector<int64_t> counts(10);
  for (uint8_t label : set.labels) ++counts[label];
  const SourcePtr test = image_source(set);
  std::optional<EvalResult> first;
  for (const int64_t devices : {1, 3, 8}) {
    EngineOptions with = options();
    with.mesh = make_mesh({{"data", devices}});
    Engine engine(small_model(), with);
    const TrainState state = engine.create_state();
    for (const int64_t batch : {1, 7, 32, 97, 1000}) {
      const EvalResult result = engine.evaluate(state, test, batch);
      EXPECT_EQ(result.examples, 97);
      EXPECT_EQ(result.counts.at("labels"), counts);
      int64_t predictions = 0;
      for (int64_t n : result.counts.at("predictions")) predictions += n;
      EXPECT_EQ(predictions, 97) << "batches of " << batch;
      if (!first) first = result;
      EXPECT_EQ(result.metric("accuracy"), first->metric("accuracy"))
          << "batches of " << batch << ", devices " << devices;
      EXPECT_EQ(result.counts, first->counts);
      const std::vector<int64_t>& hits = result.counts.at("hits");
      const int64_t correct = std::accumulate(hits.begin(), hits.end(), int64_t{0});
      EXPECT_EQ(result.metric("accuracy"), static_cast<double>(correct) / 97);
      EXPECT_NEAR(result.loss, first->loss, 1e-6);
    }
  }
}

TEST(Engine, LabelsOutsideOfTheModelsClassesAreRejected) {
  Engine engine(small_model(), options());
  const TrainState state = engine.create_state();
  ImageDataset set = digits(20);
  set.classes = 12;
  set.labels[3] = 11;
  EXPECT_THROWS(engine.evaluate(state, image_source(set)), Error,
                "evaluate: 1 of 20 labels are not among the 10 classes of the model; use the data set of the model");
}

// Trains `at` steps, saves, loads the checkpoint in another engine and trains to the end.
TrainState interrupted(const EngineOptions& with, int64_t at, int64_t steps, double dropout) {
  const TempDir dir;
  EngineOptions saving = with;
  saving.checkpoint_dir = dir.path();
  {
    Engine engine(small_model(dropout), saving);
    TrainState state = engine.create_state();
    Loader loader(digits(230), {.batch_size = 50, .seed = 3});
    engine.fit(state, loader, {.steps = at});
  }
  Engine engine(small_model(dropout), saving);
  TrainState state = engine.restore_or_create("auto");
  EXPECT_EQ(state.step, at);
  Loader loader(digits(230), {.batch_size = 50, .seed = 3});
  engine.fit(state, loader, {.steps = steps});
  return state;
}

TEST(Engine, ResumedRunEndsWithTheSameBytes) {
  struct ResumeCase {
    Optimizer::Kind kind;
    const char* precision;
    int64_t accumulate;
    double dropout;
  };
  for (const ResumeCase& c :
       {ResumeCase{Optimizer::Kind::adamw, "float32", 1, 0}, ResumeCase{Optimizer::Kind::sgd, "float32", 1, 0.5},
        ResumeCase{Optimizer::Kind::nesterov, "float32", 3, 0.5}, ResumeCase{Optimizer::Kind::adam, "float16", 1, 0},
        ResumeCase{Optimizer::Kind::momentum, "bfloat16", 1, 0}}) {
    EngineOptions with = options(c.kind);
    with.precision = precision_of(c.precision);
    with.precision.growth_interval = 3;
    with.accumulate = c.accumulate;
    with.optimizer.schedule = {.kind = Schedule::Kind::cosine, .peak = 1e-2, .total_steps = 11};
    const TrainState straight = trained(with, 11, 50, c.dropout);
    for (const int64_t at : {1, 5, 7}) {  // within an epoch of 5 batches, and at its end
      SCOPED_TRACE(testing::Message() << to_string(c.kind) << " " << c.precision << " stopped at " << at);
      expect_same_bytes(straight, interrupted(with, at, 11, c.dropout));
    }
  }
}

TEST(Engine, HalfPrecisionLearns) {
  for (const char* name : {"bfloat16", "float16"}) {
    EngineOptions with = options();
    with.precision = precision_of(name);
    Engine engine(small_model(), with);
    TrainState state = engine.create_state();
    Loader loader(digits(1000), {.batch_size = 50, .seed = 3});
    const SourcePtr test = image_source(test_digits(300));
    engine.fit(state, loader, {.steps = 60, .test = test});
    EXPECT_GT(engine.evaluate(state, test).metric("accuracy"), 0.8) << name;
    for (const Array& p : state.params) EXPECT_EQ(p.dtype(), f32);
  }
}

TEST(Engine, OverflowSkipsTheStepAndHalvesTheScale) {
  EngineOptions with = options();
  with.precision = precision_of("float16");
  with.precision.initial_scale = 16777216.0 * 1024;  // overflows f16 immediately
  with.precision.largest_scale = with.precision.initial_scale;
  Engine engine(small_model(), with);
  TrainState state = engine.create_state();
  const std::vector<float> before = state.params[0].to_vector<float>();
  Loader loader(digits(230), {.batch_size = 50, .seed = 3});
  const StepMetrics first = engine.step(state, loader, loader.next());
  EXPECT_TRUE(first.skipped);
  EXPECT_EQ(state.params[0].to_vector<float>(), before);
  EXPECT_EQ(state.optimizer.step.item<int>(), 0);
  EXPECT_EQ(state.loss_scale.scale[0].item<double>(), with.precision.initial_scale / 2);
  int64_t steps = 1;
  while (engine.step(state, loader, loader.next()).skipped) ASSERT_LT(++steps, 40);
  EXPECT_NE(state.params[0].to_vector<float>(), before);
  EXPECT_EQ(state.optimizer.step.item<int>(), 1);
}

TEST(Engine, AlarmNamesTheLayerAndStrictEndsTheRun) {
  EngineOptions with = options(Optimizer::Kind::sgd);
  with.optimizer.schedule.peak = 1e30;
  with.strict = true;
  Engine engine(small_model(), with);
  TrainState state = engine.create_state();
  Loader loader(digits(230), {.batch_size = 50, .seed = 3});
  const FitResult result = engine.fit(state, loader, {.steps = 50});
  ASSERT_FALSE(result.alarms.empty());
  EXPECT_NE(result.alarms[0].find("hidden/w"), std::string::npos) << result.alarms[0];
  EXPECT_TRUE(result.ended_by_alarm);
  EXPECT_LT(state.step, 50);
}

TEST(Engine, HooksSeeStepsAndMayEndTheRun) {
  EngineOptions with = options();
  int64_t steps = 0, evaluations = 0, ends = 0;
  with.hooks.on_step = [&](const TrainState& state, const StepMetrics& metrics) {
    EXPECT_EQ(state.step, ++steps);
    EXPECT_GT(metrics.loss, 0);
    EXPECT_EQ(metrics.grad_norms.size(), 4u);
    return steps < 7;
  };
  with.hooks.on_eval = [&](const TrainState&, const EvalResult& result) {
    return ++evaluations, result.examples == 60;
  };
  with.hooks.on_end = [&](const TrainState& state) {
    ++ends;
    EXPECT_EQ(state.step, 7);
  };
  Engine engine(small_model(), with);
  TrainState state = engine.create_state();
  Loader loader(digits(230), {.batch_size = 50, .seed = 3});
  const SourcePtr test = image_source(test_digits(60));
  const FitResult result = engine.fit(state, loader, {.steps = 100, .eval_every = 3, .test = test});
  EXPECT_TRUE(result.ended_early);
  EXPECT_FALSE(result.ended_by_alarm);
  EXPECT_EQ(evaluations, 3);  // after steps 3 and 6, and at the end after step 7
  EXPECT_EQ(ends, 1);
}

TEST(Engine, DescribesMeshPlanParametersAndMemory) {
  Engine engine(find_model("mlp"), options());
  const std::string text = engine.describe();
  for (const char* part :
       {"Mesh('data': 8)", "235,146 parameters", "dense/0/w", "f32[784,256]", "200,704", "adamw", "data parallel"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(Engine, PrintsTheSchedulesOfItsSteps) {
  const Loader loader(digits(230), {.batch_size = 50});
  Engine engine(small_model(), options());
  const std::string step = engine.schedule(engine.create_state(), loader);
  EXPECT_TRUE(step.starts_with("a step of 50 examples:\n")) << step;
  for (const char* part : {"gather", "einsum", "u8[230,28,28]"})
    EXPECT_NE(step.find(part), std::string::npos) << part << " in\n" << step;

  EngineOptions accumulating = options();
  accumulating.accumulate = 3;
  Engine other(small_model(), accumulating);
  const std::string both = other.schedule(other.create_state(), loader);
  EXPECT_TRUE(both.starts_with("a micro-batch of 17 examples:\n")) << both;
  EXPECT_NE(both.find("\nthe update:\n"), std::string::npos) << both;
}

TEST(Engine, InvalidOptionsAndStatesAreRejected) {
  EngineOptions bad = options();
  bad.accumulate = 0;
  EXPECT_THROWS(Engine(small_model(), bad), Error,
                "engine: accumulate is 0; give a number of micro-batches of at least 1");
  bad = options();
  bad.mesh = make_mesh({{"rows", 8}});
  EXPECT_THROWS(Engine(small_model(), bad), Error, "has no axis \"data\" to shard the batch");
  EXPECT_THROWS(image_task(small_model(), {.pixel_sd = 0}), Error, "image_task: pixel_sd is 0");
  EXPECT_THROWS(image_task(small_model(), {.label_smoothing = 1}), Error, "image_task: label_smoothing is 1");

  Engine engine(small_model(), options());
  TrainState state = engine.create_state();
  EXPECT_THROWS(engine.save(state), Error, "save: the engine has no checkpoint_dir");
  const Checkpoint own = detail::to_checkpoint(state, engine.task(), engine.options().optimizer);
  EXPECT_THROWS(Engine(find_model("mlp"), options()).restore(own), Error,
                "has no params/dense/0/w, which model mlp needs");
  EXPECT_THROWS(Engine(small_model(), options(Optimizer::Kind::sgd)).restore({.step = 1}), Error,
                "has no params/hidden/w");
  Checkpoint other = own;
  for (auto& [name, array] : other.arrays)
    if (name == "params/out/w") array = zeros({16, 11});
  EXPECT_THROWS(engine.restore(other), Error, "has params/out/w as f32[16,11], but model small needs f32[16,10]");
  other = own;
  other.arrays.emplace_back("params/more/w", zeros({2}));
  EXPECT_THROWS(engine.restore(other), Error, "has params/more/w as f32[2], which model small does not have");
  Engine plain(small_model(), options(Optimizer::Kind::sgd));
  EXPECT_THROWS(engine.restore(detail::to_checkpoint(plain.create_state(), plain.task(), plain.options().optimizer)),
                Error, "has no optimizer/first/hidden/w, which optimizer adamw needs");
  state.step = 9;
  Loader loader(digits(230), {.batch_size = 50});
  EXPECT_THROWS(engine.fit(state, loader, {.steps = 3}), Error,
                "the state is at step 9, after the end of the run at step 3");
}

}  // namespace
}  // namespace lockstep
