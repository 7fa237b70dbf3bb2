// The settings remat and memory_limit, and training steps that rematerialize.
#include "train/remat.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include "base/throws.h"
#include "train/eight_devices.h"

namespace lockstep {
namespace {

TEST(Remat, LimitsAreAmountsOfMemory) {
  EXPECT_EQ(memory_limit_bytes(""), 0);
  EXPECT_EQ(memory_limit_bytes("8G"), int64_t{8} << 30);
  EXPECT_EQ(memory_limit_bytes("512M"), 512 << 20);
  EXPECT_EQ(memory_limit_bytes("1.5GiB"), int64_t{3} << 29);
  EXPECT_EQ(memory_limit_bytes("2T"), int64_t{1} << 41);
  for (const char* wrong : {"8", "G", "8GB", "-1G", "0M", "8 G", "nanG", "infG", "9e99G", "8Gx"})
    EXPECT_THROWS(
        memory_limit_bytes(wrong), Error,
        fmt::format("memory_limit: \"{}\" is not an amount of memory; give a number with K, M, G or T, such as "
                    "8G",
                    wrong));
}

TEST(Remat, UnknownChoicesAreErrors) {
  TrainConfig config;
  config.remat = "some";
  EXPECT_THROWS(validate(config), Error, "remat");
  config.remat = "full";
  config.memory_limit = "much";
  EXPECT_THROWS(validate(config), Error, "memory_limit: \"much\" is not an amount of memory");
}

// The choice for a step that needs 8 MiB, or 2 MiB with remat.
struct Chosen {
  bool remat;
  std::string note, planned;
};
Chosen chosen(const std::string& remat, const std::string& limit) {
  TrainConfig config;
  config.remat = remat, config.memory_limit = limit, config.batch_size = 64;
  Chosen out;
  const auto step_bytes = [&](bool with) {
    out.planned += with ? "remat " : "stored ";
    return int64_t{with ? 2 : 8} << 20;
  };
  out.remat = choose_remat(config, step_bytes, [&](const std::string& text) { out.note = text; });
  return out;
}

TEST(Remat, IsChosenIfAStepDoesNotFitOtherwise) {
  EXPECT_FALSE(chosen("auto", "").remat);
  EXPECT_EQ(chosen("auto", "").planned, "");
  EXPECT_FALSE(chosen("auto", "8M").remat);
  EXPECT_EQ(chosen("auto", "8M").note, "");
  const Chosen fits = chosen("auto", "7M");
  EXPECT_TRUE(fits.remat);
  EXPECT_EQ(fits.note,
            "a step needs 8.0 MiB, more than the memory_limit of 7.0 MiB: blocks are rematerialized (remat), with 2.0 "
            "MiB");
  EXPECT_TRUE(chosen("full", "").remat);
  EXPECT_TRUE(chosen("full", "8M").remat);
  EXPECT_FALSE(chosen("none", "8M").remat);
}

TEST(Remat, StepsThatDoNotFitAreErrors) {
  EXPECT_THROWS(
      chosen("auto", "1M"), SettingsError,
      "train: a step of 64 examples needs 2.0 MiB on a lane, 8.0 MiB without remat, and the memory_limit is 1.0 "
      "MiB; lower batch_size, raise accumulate, choose another precision, or raise memory_limit");
  EXPECT_THROWS(chosen("full", "1M"), SettingsError, "train: a step of 64 examples needs 2.0 MiB on a lane, and the");
  EXPECT_THROWS(
      chosen("none", "7M"), SettingsError,
      "train: a step of 64 examples needs 8.0 MiB on a lane, and the memory_limit is 7.0 MiB; set remat to auto, "
      "lower batch_size");
}

// ---- steps

struct Trained {
  std::vector<double> losses;
  int64_t work;
};
Trained train_gpt(bool remat, int64_t accumulate) {
  constexpr int64_t kExamples = 64, kTokens = 32;
  const GptConfig gpt{.vocabulary = 50, .context = kTokens, .layers = 6, .heads = 2, .width = 32, .dropout = 0.1};
  const Array text = random::randint(random::key(1), {kExamples, kTokens + 1}, 0, gpt.vocabulary);
  const SourcePtr source = array_source({{"inputs", slice(text, {0, 0}, {kExamples, kTokens})},
                                         {"targets", slice(text, {0, 1}, {kExamples, kTokens + 1})}});
  Engine engine(language_task(gpt), {.mesh = make_mesh({{"data", 8}}),
                                     .accumulate = accumulate,
                                     .optimizer = {.schedule = {.peak = 1e-2}},
                                     .remat = remat});
  Loader loader(source, {.batch_size = 32});
  TrainState state = engine.create_state();
  Trained out{{}, engine.memory(state, loader, 32)[0].work};
  for (int i = 0; i < 4; ++i) out.losses.push_back(engine.step(state, loader, loader.next()).loss);
  return out;
}

TEST(Remat, SavesMemoryAndKeepsTheLosses) {
  for (const int64_t accumulate : {1, 2}) {
    const Trained stored = train_gpt(false, accumulate), remat = train_gpt(true, accumulate);
    EXPECT_EQ(remat.losses, stored.losses);
    EXPECT_LT(remat.work, stored.work * 6 / 10);
    EXPECT_NE(remat.losses.back(), remat.losses.front());
  }
}

}  // namespace
}  // namespace lockstep
