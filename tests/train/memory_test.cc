// Engine::memory() reports the memory that is allocated on the lanes: pieces of arrays, and workspaces of plans.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include "array/node.h"
#include "lane/lane.h"
#include "passes/chunked_gather.h"
#include "train/describe.h"
#include "train/eight_devices.h"
#include "train/steps.h"

namespace lockstep {
namespace {

// All extents are multiples of 8, so that every parameter is sharded evenly.
Model even_model() {
  return make_model(
      "even",
      [](const Array& key) {
        return MlpParams{.dense = {nn::dense(random::fold_in(key, 0), 784, 64),
                                   nn::dense(random::fold_in(key, 1), 64, 32),
                                   nn::dense(random::fold_in(key, 2), 32, 16)}};
      },
      [](const MlpParams& params, const Array& images, const nn::Mode&) {
        const Array x = relu(nn::apply(params.dense[0], nn::flatten(images)));
        return nn::apply(params.dense[2], relu(nn::apply(params.dense[1], x)));
      });
}

// Many equal layers: one layer needs little memory compared to all of them.
constexpr int64_t kDeep = 24, kWide = 128;
Model deep_model() {
  return make_model(
      "deep",
      [](const Array& key) {
        MlpParams out;
        out.dense.push_back(nn::dense(random::fold_in(key, 0), 784, kWide));
        for (int64_t i = 1; i < kDeep; ++i) out.dense.push_back(nn::dense(random::fold_in(key, i), kWide, kWide));
        return out;
      },
      [](const MlpParams& params, const Array& images, const nn::Mode&) {
        Array x = nn::flatten(images);
        for (const nn::Dense& layer : params.dense) x = relu(nn::apply(layer, x));
        return x;
      });
}

int64_t lanes() { return local_lane_count(); }

int64_t bytes_on(size_t lane, const std::vector<Array>& arrays) {
  int64_t bytes = 0;
  for (const Array& array : arrays) {
    const detail::LanePiecesPtr& pieces = array.node()->pieces.divided;
    bytes += pieces ? pieces->buffers[lane]->size() : array.node()->pieces.one->size();
  }
  return bytes;
}

// The workspace sizes in the texts of the lanes' plans.
std::vector<int64_t> work_in(const std::string& plans) {
  const std::string title = "arena and constants: ";
  std::vector<int64_t> out;
  for (size_t at = plans.find(title); at != std::string::npos; at = plans.find(title, at + 1))
    out.push_back(std::stoll(plans.substr(at + title.size())));
  return out;
}

EngineOptions planned(const ShardingPlan& plan) {
  return {.mesh = make_mesh({{"data", 8}}), .plan = plan, .optimizer = {.schedule = {.peak = 1e-3}}, .seed = 5};
}

constexpr int64_t kBatch = 40;
Loader digits() { return Loader(synthetic_digits(80, 1, 1).train, {.batch_size = kBatch, .seed = 3}); }

TEST(Memory, MatchesTheAllocatedMemory) {
  for (const int zero : {0, 1, 3}) {
    SCOPED_TRACE(testing::Message() << "zero " << zero);
    const EngineOptions options = planned({.zero = zero});
    Engine engine(even_model(), options);
    TrainState state = engine.create_state();
    Loader loader = digits();
    const std::vector<LaneMemory> memory = engine.memory(state, loader, kBatch);
    ASSERT_EQ(std::ssize(memory), lanes());

    const std::vector<ParameterSpecs> specs =
        specs_of(options.plan, options.mesh, engine.task().paths, engine.task().types);
    const detail::TrainShardings shardings(engine.task(), options, specs);
    const detail::CompiledSteps steps(engine.task(), options, shardings);
    const LoaderBatch batch = loader.next();
    const std::string plans = steps.plan(
        detail::arrays_of(state),
        shardings.place({loader.source()->resident(), {batch.rows}, steps.source_number(loader.source())}, kBatch),
        kBatch);
    const std::vector<int64_t> work = work_in(plans);
    ASSERT_EQ(work.size(), memory.size());

    engine.step(state, loader, batch);
    for (size_t lane = 0; lane < memory.size(); ++lane) {
      EXPECT_EQ(memory[lane].parameters, bytes_on(lane, state.params));
      EXPECT_EQ(memory[lane].optimizer, bytes_on(lane, state.optimizer.first) + bytes_on(lane, state.optimizer.second));
      EXPECT_EQ(memory[lane].gradients, 0);
      EXPECT_EQ(memory[lane].work, work[lane]);
      EXPECT_GT(memory[lane].work, 0);
    }
  }
}

TEST(Memory, FallsWithTheNumberOfLanesUnderZero3) {
  int64_t all = 0;
  for (const Type& type : even_model().types) all += type.bytes();
  const auto memory = [](int zero, int64_t accumulate) {
    EngineOptions options = planned({.zero = zero});
    options.accumulate = accumulate;
    Engine engine(even_model(), options);
    return engine.memory(engine.create_state(), digits(), kBatch);
  };
  const std::vector<LaneMemory> replicated = memory(0, 2), sharded = memory(3, 2);
  for (size_t lane = 0; lane < sharded.size(); ++lane) {
    EXPECT_EQ(sharded[lane].parameters * lanes(), all);
    EXPECT_EQ(sharded[lane].optimizer * lanes(), 2 * all);
    EXPECT_EQ(sharded[lane].gradients * lanes(), all);
    EXPECT_EQ(replicated[lane].parameters, all);
    EXPECT_EQ(replicated[lane].optimizer, 2 * all);
    EXPECT_EQ(replicated[lane].gradients, all);
    EXPECT_GT(sharded[lane].work, 0);
    if (lanes() > 1) {
      EXPECT_LT(sharded[lane].total(), replicated[lane].total());
    }
  }
}

// What a lane holds besides its share: three chunks of weights or gradients of the minimum size.
constexpr int64_t kPieceSlack = 3 * ChunkOptions{}.min_bytes;

// Gathered weights exist only while their layer is computed, forwards and backwards. So of 24 layers a lane holds one
// or two, and 1/n of everything else.
TEST(Memory, WorkspaceHoldsFewGatheredLayersUnderZero3) {
  const auto memory = [](int zero) {
    Engine engine(deep_model(), planned({.zero = zero}));
    return engine.memory(engine.create_state(), digits(), kBatch);
  };
  const std::vector<LaneMemory> replicated = memory(0), sharded = memory(3);
  for (size_t lane = 0; lane < sharded.size(); ++lane) {
    EXPECT_LE(sharded[lane].work, replicated[lane].work / lanes() + kPieceSlack);
    EXPECT_LE(sharded[lane].total(), replicated[lane].total() / lanes() + kPieceSlack);
  }
}

// The total memory on a lane, for models dominated by a few large layers or by activations.
TEST(Memory, TotalOfEveryModelFallsWithTheNumberOfLanesUnderZero3) {
  constexpr int64_t kRows = 128;
  const Loader loader(synthetic_digits(256, 1, 1).train, {.batch_size = kRows, .seed = 3});
  for (const char* name : {"mlp", "mlp1024", "cnn"}) {
    SCOPED_TRACE(name);
    const auto memory = [&](const EngineOptions& options) {
      Engine engine(find_model(name), options);
      return engine.memory(engine.create_state(), loader, kRows);
    };
    EngineOptions alone = planned({});
    alone.mesh = make_mesh({{"data", 1}});
    const std::vector<LaneMemory> one = memory(alone), sharded = memory(planned(fsdp()));
    ASSERT_EQ(one.size(), 1u);
    ASSERT_EQ(std::ssize(sharded), lanes());
    for (const LaneMemory& each : sharded) {
      EXPECT_LE(100 * lanes() * each.total(), 115 * one[0].total() + 100 * lanes() * kPieceSlack)
          << each.total() << " bytes on each of " << lanes() << " lanes, " << one[0].total() << " on one";
    }
  }
}

TEST(Memory, IsPartOfTheDescription) {
  Engine engine(even_model(), planned(fsdp()));
  const TrainState state = engine.create_state();
  const Loader loader = digits();
  const std::string plain = engine.describe(), text = engine.describe(state, loader, kBatch);
  EXPECT_NE(plain.find("memory        parameters  optimizer state   gradients       total\n"), std::string::npos)
      << plain;
  EXPECT_NE(text.find("memory        parameters  optimizer state   gradients   workspace       total\n"),
            std::string::npos)
      << text;
  for (const LaneMemory& each : engine.memory(state, loader, kBatch)) {
    const std::string row =
        fmt::format("  {:>10}  {:>15}  {:>10}  {:>10}  {:>10}\n", detail::bytes_text(each.parameters),
                    detail::bytes_text(each.optimizer), detail::bytes_text(each.gradients),
                    detail::bytes_text(each.work), detail::bytes_text(each.total()));
    EXPECT_NE(text.find(row), std::string::npos) << row << "in\n" << text;
  }
  EXPECT_NE(text.find("  lane 0"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep
