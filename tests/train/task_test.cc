// Tasks other than image classification: means, weights, states, averages, early stopping, any data.
#include "lockstep/task.h"

#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/throws.h"
#include "lane/lane.h"
#include "lockstep/averages.h"
#include "lockstep/engine.h"
#include "lockstep/text_data.h"
#include "train/eight_devices.h"
#include "train/state.h"

namespace lockstep {
namespace {

struct Line {
  Array slope, offset;
};
struct Points {
  Array x, y;
};

// Points near y = 3 x - 1.
SourcePtr points(int64_t n, uint64_t seed = 1) {
  const Array x = random::normal(random::key(seed), {n});
  const Array noise = random::normal(random::key(seed + 1), {n});
  return array_source({{"x", x}, {"y", 3 * x - 1 + 0.1f * noise}}, "points");
}

// `form`: how the loss is returned.
enum class LossForm { rows, scalar, weighted };
Task line_task(LossForm form = LossForm::rows) {
  return make_task<Points>(
      "line",
      [](const Array&) {
        return Line{zeros({}), zeros({})};
      },
      [form](const Line& line, const Points& batch, const nn::Mode&) -> TaskResult {
        const Array error = line.slope * batch.x + line.offset - batch.y;
        const Array squares = square(error);
        TaskResult out;
        out.metrics = {{"abs_error", abs(error)}, {"positive", error > 0}, {"spread", max(abs(error))}};
        if (form == LossForm::rows) out.loss = squares;
        if (form == LossForm::scalar) out.loss = mean(squares);
        if (form == LossForm::weighted) out.loss = {squares, full(squares.shape(), 0.5)};
        return out;
      });
}

EngineOptions sgd(double rate = 0.1) {
  return {.optimizer = {.kind = Optimizer::Kind::sgd, .schedule = {.peak = rate}}, .seed = 5};
}

std::vector<float> params_of(const TrainState& state) {
  std::vector<float> out;
  for (const Array& each : state.params)
    for (const float value : each.to_vector<float>()) out.push_back(value);
  return out;
}

std::vector<float> trained_line(const Task& task, EngineOptions options, int64_t steps = 40) {
  Engine engine(task, std::move(options));
  TrainState state = engine.create_state();
  Loader loader(points(70), {.batch_size = 16, .seed = 2});
  engine.fit(state, loader, {.steps = steps});
  return params_of(state);
}

TEST(Task, LearnsARegression) {
  Engine engine(line_task(), sgd());
  TrainState state = engine.create_state();
  Loader loader(points(500), {.batch_size = 50, .seed = 2});
  const FitResult result = engine.fit(state, loader, {.steps = 60, .test = points(200, 7)});
  EXPECT_TRUE(result.alarms.empty()) << testing::PrintToString(result.alarms);
  EXPECT_NEAR(state.params[0].item<double>(), 3, 0.03);
  EXPECT_NEAR(state.params[1].item<double>(), -1, 0.03);
  EXPECT_TRUE(is_met({"test_loss", "<=", 0.015}, result.metrics));
  EXPECT_TRUE(is_met({"test_abs_error", "<=", 0.1}, result.metrics));
}

TEST(Task, FormsOfALossAgree) {
  const std::vector<float> rows = trained_line(line_task(), sgd());
  for (const LossForm form : {LossForm::scalar, LossForm::weighted}) {
    const std::vector<float> other = trained_line(line_task(form), sgd());
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(rows[i], other[i], 1e-5) << static_cast<int>(form);
  }
}

// 16 examples in 3 micro-batches of different sizes, and a last batch of 6.
TEST(Task, AccumulationEqualsTheFullBatch) {
  EngineOptions accumulated = sgd();
  accumulated.accumulate = 3;
  for (const LossForm form : {LossForm::rows, LossForm::scalar, LossForm::weighted}) {
    const std::vector<float> one = trained_line(line_task(form), sgd()),
                             three = trained_line(line_task(form), accumulated);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], three[i], 1e-5) << static_cast<int>(form);
  }
}

TEST(Task, MetricsAreMeansOverAllExamples) {
  const SourcePtr data = points(37);
  double squares = 0, absolute = 0, positive = 0;
  for (const float y : data->resident().at("y").to_vector<float>()) {
    squares += static_cast<double>(y) * y;
    absolute += std::abs(y);
    positive += -y > 0 ? 1 : 0;
  }
  for (const int64_t devices : {1, 3, 8})
    for (const int64_t batch : {1, 10, 37, 1000}) {
      EngineOptions options = sgd();
      options.mesh = make_mesh({{"data", devices}});
      Engine engine(line_task(), options);
      const EvalResult result = engine.evaluate(engine.create_state(), data, batch);
      EXPECT_EQ(result.examples, 37);
      EXPECT_NEAR(result.loss, squares / 37, 1e-5);
      EXPECT_NEAR(result.metric("abs_error"), absolute / 37, 1e-6);
      EXPECT_EQ(result.metric("positive"), positive / 37);
      EXPECT_THROWS(result.metric("accuracy"), Error,
                    "there is no metric accuracy; the metrics are loss, abs_error, positive, spread");
    }
}

// Weights decide which values count, across batches with different sums of weights.
TEST(Task, WeightedMeans) {
  struct Values {
    Array value, weight;
  };
  const Task task = make_task<Values>(
      "weighted",
      [](const Array&) {
        return Line{zeros({}), zeros({})};
      },
      [](const Line& line, const Values& batch, const nn::Mode&) -> TaskResult {
        return {.loss = {square(line.offset - batch.value), batch.weight},
                .metrics = {{"value", {batch.value, batch.weight}}}};
      });
  const SourcePtr data = array_source({{"value", Array::from(std::vector<float>{1, 2, 3, 4, 100}, {5})},
                                       {"weight", Array::from(std::vector<float>{1, 3, 0, 0, 0}, {5})}});
  for (const int64_t accumulate : {1, 2}) {
    EngineOptions options = sgd(0.5);
    options.accumulate = accumulate;
    Engine engine(task, options);
    TrainState state = engine.create_state();
    for (const int64_t batch : {2, 3, 5})
      EXPECT_NEAR(engine.evaluate(state, data, batch).metric("value"), 1.75, 1e-6) << batch;
    Loader loader(data, {.batch_size = 5});
    const StepMetrics metrics = engine.step(state, loader, loader.next());
    EXPECT_NEAR(metrics.loss, (1 + 3 * 4) / 4.0, 1e-5);
    EXPECT_NEAR(metrics.metrics.at(0).second, 1.75, 1e-6);
    EXPECT_NEAR(state.params[1].item<double>(), 1.75, 1e-5);  // one step with rate 1/2 reaches the weighted mean
  }
}

TEST(Task, WrongResultsAreRejected) {
  const SourcePtr data = points(20);
  const auto run = [&](auto make_result) {
    Engine engine(make_task<Points>(
                      "wrong",
                      [](const Array&) {
                        return Line{zeros({}), zeros({})};
                      },
                      [=](const Line& line, const Points& batch, const nn::Mode&) -> TaskResult {
                        return make_result(line.slope * batch.x);
                      }),
                  sgd());
    TrainState state = engine.create_state();
    Loader loader(data, {.batch_size = 10});
    engine.step(state, loader, loader.next());
  };
  EXPECT_THROWS(run([](const Array&) { return TaskResult{}; }), Error, "task: the loss is an undefined array");
  EXPECT_THROWS(run([](const Array& x) {
                  return TaskResult{.loss = reshape(x, {2, 5})};
                }),
                Error,
                "task: the loss is f32[2,5] for a batch of 10 examples; return one row per example, or a scalar mean");
  EXPECT_THROWS(run([](const Array& x) {
                  return TaskResult{.loss = {x, ones({3})}};
                }),
                Error, "task: the loss is f32[10], but its weights are f32[3]; give one weight per value");
  EXPECT_THROWS(run([](const Array& x) { return TaskResult{.loss = astype(x, i32)}; }), Error,
                "task: the loss is i32[10]; return floating-point values");
  EXPECT_THROWS(run([](const Array& x) {
                  return TaskResult{.loss = x, .metrics = {{"m", ones({4})}}};
                }),
                Error, "task: metric m is f32[4] for a batch of 10 examples");
  Engine images(image_task(find_model("mlp")), sgd());
  EXPECT_THROWS(images.evaluate(images.create_state(), data), Error,
                "task mlp: it reads the field images, but the data has x, y");
}

// A net with a batch norm: its running mean and variance are states.
struct Normed {
  nn::Dense in;
  nn::BatchNorm norm;
  nn::Dense out;
};
Task normed_task() {
  return make_task<Points>(
      "normed",
      [](const Array& key) {
        return Normed{nn::dense(key, 1, 4), nn::batch_norm(4), nn::dense(key, 4, 1)};
      },
      [](const Normed& net, const Points& batch, const nn::Mode& mode) -> TaskResult {
        const Array x = nn::apply(net.in, reshape(batch.x, {-1, 1}));
        const Array y = nn::apply(net.out, relu(nn::apply(net.norm, x, mode)));
        return {.loss = square(reshape(y, {-1}) - batch.y)};
      });
}

TEST(Task, StatesAreUpdatedNotTrained) {
  Engine engine(normed_task(), sgd(0.05));
  const Task& task = engine.task();
  size_t states = 0;
  for (size_t i = 0; i < task.paths.size(); ++i) {
    EXPECT_EQ(!task.trained[i], task.paths[i] == "norm/mean" || task.paths[i] == "norm/variance") << task.paths[i];
    states += task.trained[i] ? 0 : 1;
  }
  EXPECT_EQ(states, 2u);
  TrainState state = engine.create_state();
  std::vector<std::vector<float>> before;
  for (const Array& each : state.params) before.push_back(each.to_vector<float>());
  Loader loader(points(64), {.batch_size = 32, .seed = 1});
  const double first = engine.evaluate(state, points(64)).loss;
  const FitResult result = engine.fit(state, loader, {.steps = 100});
  for (size_t i = 0; i < task.paths.size(); ++i)
    EXPECT_NE(state.params[i].to_vector<float>(), before[i]) << task.paths[i];
  EXPECT_LT(engine.evaluate(state, points(64)).loss, first / 4) << "running values are wrong";

  // The checkpoint has the states, but no optimizer state for them.
  const Checkpoint saved = detail::to_checkpoint(state, task, engine.options().optimizer);
  size_t found = 0;
  for (const auto& [name, array] : saved.arrays) found += name == "params/norm/mean" || name == "params/norm/variance";
  EXPECT_EQ(found, 2u);
  EXPECT_EQ(params_of(engine.restore(saved)), params_of(state));
}

std::vector<float> running_mean(const Engine& engine, const TrainState& state) {
  const std::vector<std::string>& paths = engine.task().paths;
  const auto at = std::find(paths.begin(), paths.end(), "norm/mean");
  return state.params[static_cast<size_t>(at - paths.begin())].to_vector<float>();
}

// With micro-batches each one updates the running values in turn.
TEST(Task, StatesPassThroughMicroBatches) {
  EngineOptions options = sgd(0.0001);
  options.accumulate = 4;
  Engine engine(normed_task(), options);
  TrainState state = engine.create_state();
  Loader loader(points(64), {.batch_size = 64, .seed = 1});
  const std::vector<float> before = running_mean(engine, state);
  engine.step(state, loader, loader.next());
  const std::vector<float> four = running_mean(engine, state);
  Engine whole(normed_task(), sgd(0.0001));
  TrainState other = whole.create_state();
  loader.seek({0, 0});
  whole.step(other, loader, loader.next());
  const std::vector<float> one = running_mean(whole, other);
  // Momentum 0.1: one update moves a tenth of the way, four move 1 - 0.9^4 of it.
  double moved_once = 0, moved_four_times = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    moved_once += std::abs(one[i] - before[i]);
    moved_four_times += std::abs(four[i] - before[i]);
  }
  EXPECT_GT(moved_four_times, 2 * moved_once);
}

TEST(Task, EvaluationsUseTheAverageOfTheWeights) {
  EngineOptions options = sgd(0.3);
  options.ema_decay = 0.9;
  Engine engine(line_task(), options);
  TrainState state = engine.create_state();
  std::vector<double> average = {0, 0};
  Loader loader(points(64), {.batch_size = 16, .seed = 1});
  for (int64_t step = 0; step < 6; ++step) {
    engine.step(state, loader, loader.next());
    const double decay = average_decay(0.9, step);
    for (size_t i = 0; i < 2; ++i) average[i] += (1 - decay) * (state.params[i].item<double>() - average[i]);
  }
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(state.average[i].item<double>(), average[i], 1e-6);
  const Checkpoint saved = detail::to_checkpoint(state, engine.task(), engine.options().optimizer);
  const TrainState restored = engine.restore(saved);
  EXPECT_EQ(restored.average[0].item<float>(), state.average[0].item<float>());
  TrainState plain = state;
  plain.average.clear();
  EXPECT_NE(engine.evaluate(state, points(50)).loss, engine.evaluate(plain, points(50)).loss);
  // A run without an average can begin one.
  Engine without(line_task(), sgd(0.3));
  const Checkpoint old = detail::to_checkpoint(without.create_state(), without.task(), without.options().optimizer);
  EXPECT_EQ(engine.restore(old).average.size(), 2u);
}

// The validation loss first falls, then rises, because the targets of the training set are wrong.
class Patience : public ::testing::Test {
 protected:
  static SourcePtr training() {
    const Array x = random::normal(random::key(3), {64});
    return array_source({{"x", x}, {"y", 6 * x}});
  }
  static SourcePtr validation() {
    const Array x = random::normal(random::key(4), {64});
    return array_source({{"x", x}, {"y", 3 * x}});
  }
  // `stop_at`: the step at which a signal stops the run; -1: none.
  FitResult fit(int64_t steps, int64_t patience, int64_t stop_at = -1) {
    EngineOptions options = sgd(0.02);
    options.checkpoint_dir = dir_.path();
    options.checkpoint_seconds = checkpoint_seconds_;
    options.keep_last = 1;
    options.hooks.on_step = [this](const TrainState& state, const StepMetrics&) {
      step_ = state.step;
      return true;
    };
    options.loggers = {messages_};
    Engine engine(line_task(), options);
    TrainState state = engine.restore_or_create("auto");
    step_ = state.step;
    Loader loader(training(), {.batch_size = 16, .seed = 1});
    FitResult result = engine.fit(state, loader,
                                  {.steps = steps,
                                   .eval_every = 2,
                                   .validation = validation(),
                                   .test = points(30),
                                   .patience = patience,
                                   .stop = [&] { return step_ == stop_at; }});
    step_ = state.step;
    best_ = state.best_step;
    return result;
  }

  class Messages final : public Logger {
   public:
    void step(int64_t, const Scalars&) override {}
    void evaluation(int64_t, const Scalars&) override {}
    void message(int64_t, const std::string& text, bool) override { last = text; }
    std::string last;
  };

  const TempDir dir_;
  const std::shared_ptr<Messages> messages_ = std::make_shared<Messages>();
  int64_t step_ = 0, best_ = 0;
  int64_t checkpoint_seconds_ = 0;
};

TEST_F(Patience, TheBestIsSavedWithinTheIntervalOfSaves) {
  checkpoint_seconds_ = 1'000'000;
  fit(400, 3);
  EXPECT_LT(best_, step_);
  EXPECT_EQ(list_checkpoints(dir_.path()), (std::vector<int64_t>{best_, step_}));
}

TEST_F(Patience, EndsTheRunAndKeepsTheBestCheckpoint) {
  const FitResult result = fit(400, 3);
  EXPECT_TRUE(result.out_of_patience);
  EXPECT_TRUE(result.ended_early);
  EXPECT_FALSE(result.unsaved);
  EXPECT_EQ(step_, best_ + 6);
  EXPECT_LT(step_, 100);
  EXPECT_EQ(list_checkpoints(dir_.path()), (std::vector<int64_t>{best_, step_}));
  EXPECT_TRUE(messages_->last.starts_with("lowest validation loss: ")) << messages_->last;
  EXPECT_TRUE(messages_->last.ends_with(fmt::format(" at step {}, whose checkpoint is kept", best_)))
      << messages_->last;
  // The test set was evaluated once, at the end.
  EXPECT_TRUE(is_met({"test_loss", ">=", 0}, result.metrics));
  EXPECT_TRUE(is_met({"validation_loss", ">=", 0}, result.metrics));
  // Resumed, the run is over.
  const int64_t ended = step_;
  EXPECT_TRUE(fit(400, 3).out_of_patience);
  EXPECT_EQ(step_, ended);
}

TEST_F(Patience, ContinuesToCountAfterAResume) {
  fit(400, 3);
  const int64_t whole = step_;
  for (const int64_t at : {whole - 5, whole - 3, whole - 1}) {
    std::filesystem::remove_all(dir_.path());
    EXPECT_TRUE(fit(400, 3, at).stopped);
    EXPECT_EQ(step_, at);
    fit(400, 3);
    EXPECT_EQ(step_, whole) << "interrupted at " << at;
  }
}

TEST_F(Patience, ATestSetSelectsNothing) {
  EngineOptions options = sgd(0.02);
  options.checkpoint_dir = dir_.path();
  options.keep_last = 1;
  Engine engine(line_task(), options);
  TrainState state = engine.create_state();
  Loader loader(training(), {.batch_size = 16, .seed = 1});
  engine.fit(state, loader, {.steps = 40, .eval_every = 2, .test = validation()});
  EXPECT_EQ(list_checkpoints(dir_.path()), std::vector<int64_t>{40});
}

// A language model on tokens in memory and from a file: the same windows, so the same bits.
class TextTask : public ::testing::Test {
 protected:
  static std::vector<int32_t> tokens() {
    std::vector<int32_t> out;
    for (int32_t i = 0; i < 2000; ++i) out.push_back((i * i / 7 + i % 5) % 17);
    return out;
  }
  static GptConfig config() {
    GptConfig out = gpt_config("char-small");
    out.vocabulary = 17;
    out.context = 16;
    out.layers = 2;
    out.heads = 2;
    out.width = 16;
    out.dropout = 0.1;
    return out;
  }
  static std::vector<float> trained(const SourcePtr& source, int64_t accumulate = 1, int64_t devices = 1) {
    EngineOptions options{.accumulate = accumulate, .optimizer = {.schedule = {.peak = 3e-3}}, .seed = 4};
    options.mesh = make_mesh({{"data", devices}});
    Engine engine(language_task(config(), {.bytes_per_token = 2}), options);
    TrainState state = engine.create_state();
    Loader loader(source, {.batch_size = 12, .seed = 9});
    engine.fit(state, loader, {.steps = 14});
    return params_of(state);
  }
};

TEST_F(TextTask, ResidentAndStreamedTrainToTheSameBits) {
  const TempDir dir;
  std::vector<uint8_t> bytes;
  for (const int32_t token : tokens()) bytes.insert(bytes.end(), {static_cast<uint8_t>(token), 0});
  FileSystem::real().write(dir.path() + "/tokens.bin", bytes);
  const TokenWindows windows{.context = 16, .seed = 3, .vocabulary = 17};
  const std::vector<float> resident = trained(token_source(tokens(), windows));
  EXPECT_EQ(resident, trained(token_file_source(dir.path() + "/tokens.bin", windows)));
  if (local_lane_count() == 1) {
    EXPECT_EQ(resident, trained(token_source(tokens(), windows), 1, 4));
  }
}

TEST_F(TextTask, EvaluatesEveryPredictionOnce) {
  Engine engine(language_task(config(), {.bytes_per_token = 2}), {.seed = 4});
  const TrainState state = engine.create_state();
  const SourcePtr set = token_source(tokens(), {.context = 16, .shuffle_offset = false});
  const EvalResult whole = engine.evaluate(state, set, 1000);
  EXPECT_NEAR(whole.loss, std::log(17.0), 0.2);
  EXPECT_NEAR(whole.metric("perplexity"), std::exp(whole.loss), 1e-9);
  EXPECT_NEAR(whole.metric("bits_per_byte"), whole.loss / std::log(2.0) / 2, 1e-9);
  for (const int64_t batch : {1, 7, 50}) EXPECT_NEAR(engine.evaluate(state, set, batch).loss, whole.loss, 1e-6);
  // The padded end does not count: the mean over 1,999 predictions is that of the complete windows and the rest.
  const std::vector<int32_t> all = tokens();
  const std::vector<int32_t> complete(all.begin(), all.begin() + 124 * 16 + 1), rest(all.begin() + 124 * 16, all.end());
  const double first = engine.evaluate(state, token_source(complete, {.context = 16, .shuffle_offset = false})).loss;
  const double last = engine.evaluate(state, token_source(rest, {.context = 16, .shuffle_offset = false})).loss;
  EXPECT_NEAR(whole.loss, (first * 124 * 16 + last * 15) / 1999, 1e-5);
}

}  // namespace
}  // namespace lockstep
