// Training under sharding plans gives the results of one device, on any number of lanes (LOCKSTEP_CPU_LANES).
// Checkpoints can be loaded under another mesh and plan.
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <cmath>
#include <cstring>
#include <random>

#include "array/node.h"
#include "base/file.h"
#include "data/idx.h"
#include "lane/lane.h"
#include "sharding/lanes.h"
#include "train/eight_devices.h"
#include "train/state.h"

namespace lockstep {
namespace {

struct ShardedNet {
  nn::Dense hidden, out;
};
Model small_sharded_model(double dropout = 0) {
  return make_model(
      "small",
      [](const Array& key) {
        return ShardedNet{nn::dense(key, 784, 16), nn::dense(random::fold_in(key, 1), 16, 10)};
      },
      [dropout](const ShardedNet& net, const Array& x, const nn::Mode& mode) {
        const Array h = nn::dropout(mode, 0, relu(nn::apply(net.hidden, nn::flatten(x))), dropout);
        return nn::apply(net.out, h);
      });
}

// Column-parallel, then row-parallel: one sum over the model axis per pass.
std::vector<ShardingRule> tensor_rules() {
  return {{"hidden/w", P({}, "model")}, {"hidden/b", P("model")}, {"out/w", P("model")}};
}

struct Case {
  const char* name;
  int64_t data, model;
  ShardingPlan plan;
};

std::vector<Case> cases() {
  const auto with_zero = [](int zero) {
    ShardingPlan plan = tensor_parallel(tensor_rules());
    plan.zero = zero;
    return plan;
  };
  return {{"data parallel", 8, 1, data_parallel()},
          {"data parallel on 3", 3, 1, data_parallel()},
          {"zero 1", 8, 1, {.zero = 1}},
          {"zero 2", 8, 1, {.zero = 2}},
          {"fsdp", 8, 1, fsdp()},
          {"fsdp of a part", 4, 2, fsdp()},
          {"tensor", 1, 8, tensor_parallel(tensor_rules())},
          {"tensor and data", 4, 2, with_zero(0)},
          {"tensor and data, model wide", 2, 4, with_zero(0)},
          {"tensor and zero 1", 2, 4, with_zero(1)},
          {"tensor and fsdp", 4, 2, with_zero(3)},
          {"tensor and fsdp, model wide", 2, 4, with_zero(3)},
          {"all weights by both axes", 2, 4, tensor_parallel({{"*/w", P({"data", "model"})}})}};
}

EngineOptions options_of(const Case& c, Optimizer::Kind kind = Optimizer::Kind::adamw) {
  return {.mesh = make_mesh({{"data", c.data}, {"model", c.model}}),
          .plan = c.plan,
          .optimizer = {.kind = kind, .schedule = {.peak = 1e-2}, .weight_decay = 1e-3, .clip_norm = 1},
          .seed = 5};
}
const Case kAlone = {"alone", 1, 1, {}};

struct Outcome {
  std::vector<double> losses, norms;
  EvalResult evaluated;
  TrainState state;
};

Outcome trained_on(EngineOptions with, int64_t steps = 6, double dropout = 0) {
  Outcome out;
  Engine engine(small_sharded_model(dropout), std::move(with));
  out.state = engine.create_state();
  const ImageDataset set = synthetic_digits(230, 1, 1).train;
  Loader loader(set, {.batch_size = 50, .seed = 3});
  for (int64_t i = 0; i < steps; ++i) {
    LoaderBatch batch = loader.next();
    const StepMetrics metrics = engine.step(out.state, loader, batch);
    out.losses.push_back(metrics.loss);
    out.norms.push_back(metrics.grad_norm);
  }
  out.evaluated = engine.evaluate(out.state, image_source(set), 90);
  return out;
}

void expect_alike(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], 1e-4 * a.losses[i]) << "step " << i;
    EXPECT_NEAR(a.norms[i], b.norms[i], 1e-3 * a.norms[i]) << "step " << i;
  }
  EXPECT_NEAR(a.evaluated.loss, b.evaluated.loss, 1e-4 * a.evaluated.loss);
  EXPECT_EQ(b.evaluated.examples, 230);
  EXPECT_EQ(a.evaluated.counts.at("labels"), b.evaluated.counts.at("labels"));
  EXPECT_NEAR(a.evaluated.metric("accuracy"), b.evaluated.metric("accuracy"), 0.01);
}

void expect_planned_shardings(const TrainState& state, const EngineOptions& with) {
  const Model model = small_sharded_model();
  const std::vector<ParameterSpecs> specs = specs_of(with.plan, with.mesh, model.paths, model.types);
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(state.params[i].sharding(), NamedSharding(with.mesh, specs[i].param)) << model.paths[i];
    for (const auto& leaves : {state.optimizer.first, state.optimizer.second}) {
      if (leaves.empty()) continue;
      EXPECT_EQ(leaves[i].sharding(), NamedSharding(with.mesh, specs[i].state)) << model.paths[i];
    }
  }
}

// After a step, each lane of this process holds exactly the piece that the plan assigns to it.
void expect_planned_pieces(const TrainState& state, const EngineOptions& with) {
  const LaneGrid grid = lane_grid(with.mesh, local_lane_count());
  if (grid.axes.empty()) return;
  const Model model = small_sharded_model();
  const std::vector<ParameterSpecs> specs = specs_of(with.plan, with.mesh, model.paths, model.types);
  const auto expect_pieces = [&](const Array& array, const PartitionSpec& spec, const std::string& name) {
    const detail::LanePiecesPtr& pieces = array.node()->pieces.divided;
    ASSERT_TRUE(pieces) << name;
    EXPECT_EQ(pieces->lane_spec, to_lane_spec(grid, spec, array.shape().size())) << name;
    for (int64_t lane = 0; lane < grid.lanes(); ++lane) {
      int64_t elements = 1;
      for (const Range& range : lane_box(grid, pieces->lane_spec, array.shape(), lane)) elements *= range.size();
      EXPECT_EQ(pieces->buffers[static_cast<size_t>(lane)]->size(), 4 * elements) << name << ", lane " << lane;
    }
  };
  for (size_t i = 0; i < specs.size(); ++i) {
    expect_pieces(state.params[i], specs[i].param, model.paths[i]);
    expect_pieces(state.optimizer.first[i], specs[i].state, model.paths[i]);
    expect_pieces(state.optimizer.second[i], specs[i].state, model.paths[i]);
  }
}

// Arrays that are sharded over lanes were loaded in pieces, not gathered.
void expect_loaded_as_pieces(const TrainState& state, const EngineOptions& with) {
  const LaneGrid grid = lane_grid(with.mesh, local_lane_count());
  const Model model = small_sharded_model();
  const std::vector<ParameterSpecs> specs = specs_of(with.plan, with.mesh, model.paths, model.types);
  for (size_t i = 0; i < specs.size(); ++i) {
    const LaneSpec lane_spec = to_lane_spec(grid, specs[i].param, model.types[i].shape.size());
    const bool sharded =
        std::any_of(lane_spec.begin(), lane_spec.end(), [](const auto& axes) { return !axes.empty(); });
    EXPECT_EQ(!!state.params[i].node()->pieces.divided, sharded) << model.paths[i];
    EXPECT_FALSE(state.params[i].node()->host) << model.paths[i];
  }
}

TEST(Sharded, EveryPlanTrainsLikeOneDevice) {
  const Outcome alone = trained_on(options_of(kAlone));
  EXPECT_LT(alone.losses.back(), alone.losses.front());
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const Outcome sharded = trained_on(options_of(c));
    expect_alike(alone, sharded);
    expect_planned_shardings(sharded.state, options_of(c));
    expect_planned_pieces(sharded.state, options_of(c));
  }
}

TEST(Sharded, AccumulationUnderEveryPlanTrainsLikeOneDevice) {
  EngineOptions one = options_of(kAlone);
  one.accumulate = 3;
  const Outcome alone = trained_on(one);
  expect_alike(trained_on(options_of(kAlone)), alone);
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    EngineOptions with = options_of(c);
    with.accumulate = 3;
    const Outcome sharded = trained_on(with);
    expect_alike(alone, sharded);
    expect_planned_shardings(sharded.state, with);
    expect_planned_pieces(sharded.state, with);
  }
}

TEST(Sharded, EveryOptimizerTrainsLikeOneDevice) {
  for (const auto kind : {Optimizer::Kind::sgd, Optimizer::Kind::nesterov, Optimizer::Kind::adam}) {
    const Outcome alone = trained_on(options_of(kAlone, kind));
    for (const Case& c : cases()) {
      if (c.plan.zero != 3) continue;
      SCOPED_TRACE(testing::Message() << to_string(kind) << ", " << c.name);
      expect_alike(alone, trained_on(options_of(c, kind)));
    }
  }
}

TEST(Sharded, DropoutDrawsTheSameMasks) {
  const Outcome alone = trained_on(options_of(kAlone), 6, 0.4);
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    expect_alike(alone, trained_on(options_of(c), 6, 0.4));
  }
}

TEST(Sharded, HalfPrecisionTrainsLikeOneDevice) {
  for (const char* name : {"bfloat16", "float16"}) {
    EngineOptions one = options_of(kAlone);
    one.precision = precision_of(name);
    const Outcome alone = trained_on(one);
    for (const Case& c : cases()) {
      SCOPED_TRACE(testing::Message() << name << ", " << c.name);
      EngineOptions with = options_of(c);
      with.precision = precision_of(name);
      const Outcome sharded = trained_on(with);
      for (size_t i = 0; i < alone.losses.size(); ++i)
        EXPECT_NEAR(alone.losses[i], sharded.losses[i], 0.02 * alone.losses[i]) << "step " << i;
    }
  }
}

TEST(Sharded, BatchWithFewerRowsThanDevicesTrains) {
  const auto run = [](const EngineOptions& with) {
    Engine engine(small_sharded_model(), with);
    TrainState state = engine.create_state();
    Loader loader(synthetic_digits(23, 1, 1).train, {.batch_size = 22, .seed = 3});
    std::vector<double> losses;
    for (int i = 0; i < 4; ++i) {
      LoaderBatch batch = loader.next();  // 22, 1, 22 and 1 examples
      losses.push_back(engine.step(state, loader, batch).loss);
    }
    return losses;
  };
  const std::vector<double> alone = run(options_of(kAlone));
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const std::vector<double> sharded = run(options_of(c));
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(alone[i], sharded[i], 1e-4 * alone[i]) << "step " << i;
  }
}

TEST(Sharded, StreamedBatchesTrainLikeResidentOnes) {
  const TempDir dir;
  const ImageDataset set = synthetic_digits(230, 1, 1).train;
  const ImageFiles files = {dir.path() + "/images", dir.path() + "/labels"};
  FileSystem::real().write(files.images_path, encode_idx({{set.count, set.rows, set.cols}, set.images}));
  FileSystem::real().write(files.labels_path, encode_idx({{set.count}, set.labels}));
  const Outcome alone = trained_on(options_of(kAlone));
  for (const Case& c : cases())
    for (const int64_t accumulate : {1, 3}) {
      SCOPED_TRACE(testing::Message() << c.name << ", in " << accumulate);
      EngineOptions with = options_of(c);
      with.accumulate = accumulate;
      Engine engine(small_sharded_model(), with);
      TrainState state = engine.create_state();
      Loader loader(files, {.batch_size = 50, .seed = 3});
      for (double loss : alone.losses) EXPECT_NEAR(engine.step(state, loader, loader.next()).loss, loss, 1e-4 * loss);
    }
}

void expect_same_bytes(const Checkpoint& a, const Checkpoint& b) {
  ASSERT_EQ(a.arrays.size(), b.arrays.size());
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.cursor, b.cursor);
  for (size_t i = 0; i < a.arrays.size(); ++i) {
    const auto& [name, p] = a.arrays[i];
    const Array& q = b.arrays[i].second;
    ASSERT_EQ(name, b.arrays[i].first);
    ASSERT_EQ(p.type(), q.type()) << name;
    if (p.dtype() == f32)
      EXPECT_EQ(std::memcmp(p.data<float>().data(), q.data<float>().data(), static_cast<size_t>(p.type().bytes())), 0)
          << name;
    else
      EXPECT_EQ(p.to_vector<int64_t>(), q.to_vector<int64_t>()) << name;
  }
}

TEST(Sharded, CheckpointsMoveBetweenAnyMeshesAndPlans) {
  const std::vector<Case> all = cases();
  std::mt19937_64 random(7);
  for (int round = 0; round < 12; ++round) {
    const Case &from = all[random() % all.size()], &to = all[random() % all.size()];
    SCOPED_TRACE(testing::Message() << from.name << " to " << to.name);
    const TempDir dir;
    EngineOptions writing = options_of(from), reading = options_of(to);
    writing.checkpoint_dir = reading.checkpoint_dir = dir.path();
    const TrainState state = trained_on(writing, 2).state;
    const Checkpoint held = detail::to_checkpoint(state, image_task(small_sharded_model()), {});
    Engine writer(small_sharded_model(), writing), reader(small_sharded_model(), reading);
    const Checkpoint written = load_checkpoint(writer.save(state));
    expect_same_bytes(held, written);

    TrainState restored = reader.restore(written);
    expect_planned_shardings(restored, reading);
    expect_same_bytes(held, detail::to_checkpoint(restored, image_task(small_sharded_model()), {}));

    // The same when each lane reads its pieces from the disk.
    const TrainState resumed = reader.restore_or_create("auto");
    expect_planned_shardings(resumed, reading);
    expect_loaded_as_pieces(resumed, reading);
    expect_same_bytes(held, detail::to_checkpoint(resumed, image_task(small_sharded_model()), {}));

    // A step under the other plan gives the same loss.
    Loader loader(synthetic_digits(230, 1, 1).train, {.batch_size = 50, .seed = 3});
    const LoaderBatch batch = loader.next();
    TrainState again = writer.restore(written);
    const double there = reader.step(restored, loader, batch).loss, here = writer.step(again, loader, batch).loss;
    EXPECT_NEAR(there, here, 1e-4 * here);
    expect_planned_shardings(restored, reading);
    const Checkpoint moved = load_checkpoint(reader.save(restored));
    expect_same_bytes(detail::to_checkpoint(restored, image_task(small_sharded_model()), {}), moved);
    for (size_t i = 0; i < restored.params.size(); ++i) {
      const std::span<const float> p = again.params[i].data<float>(), q = restored.params[i].data<float>();
      double worst = 0;
      for (size_t k = 0; k < p.size(); ++k) worst = std::max(worst, std::abs(static_cast<double>(p[k]) - q[k]));
      EXPECT_LT(worst, 2e-2) << "parameter "
                             << i;  // Adam's update is about 1e-2 even for gradients near rounding errors
    }
  }
}

}  // namespace
}  // namespace lockstep
