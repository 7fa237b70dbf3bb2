#include <gtest/gtest.h>

#include <set>

#include "base/throws.h"
#include "data/text/token_file.h"
#include "lockstep/jit.h"
#include "lockstep/text_data.h"

namespace lockstep {
namespace {

std::vector<int32_t> counting(int64_t n, int64_t vocabulary = 1 << 20) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<int32_t>(i % vocabulary));
  return out;
}

struct Windows {
  std::vector<int32_t> inputs, targets;
  bool operator==(const Windows&) const = default;
};

// The rows of a source, by gather() or read().
Windows windows_of(const Source& source, const std::vector<int64_t>& rows) {
  const int64_t context = source.fields()[0].example.shape[0];
  Windows out;
  if (!source.resident().empty()) {
    const std::vector<int32_t> positions(rows.begin(), rows.end());
    const auto gather = jit([&](const BatchArrays& data, const Array& at) { return source.gather(data, at); });
    const BatchArrays batch = gather(source.resident(), Array::from(positions, {std::ssize(positions)}));
    EXPECT_EQ(batch.at("inputs").shape(), (Shape{std::ssize(rows), context}));
    EXPECT_EQ(batch.at("targets").dtype(), i32);
    return {batch.at("inputs").to_vector<int32_t>(), batch.at("targets").to_vector<int32_t>()};
  }
  out.inputs.resize(rows.size() * static_cast<size_t>(context));
  out.targets.resize(out.inputs.size());
  std::byte* const buffers[] = {reinterpret_cast<std::byte*>(out.inputs.data()),
                                reinterpret_cast<std::byte*>(out.targets.data())};
  source.read(rows, buffers);
  return out;
}

std::vector<int64_t> rows_of(const Source& source, int64_t epoch) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < source.count(); ++i) out.push_back(source.row(epoch, i));
  return out;
}

class TokenSources : public testing::Test {
 protected:
  // A streamed source of the tokens, which are a part of a longer file.
  SourcePtr streamed(const std::vector<int32_t>& tokens, const TokenWindows& windows) const {
    std::vector<int32_t> all = {7, 7, 7};
    all.insert(all.end(), tokens.begin(), tokens.end());
    all.insert(all.end(), {7, 7, 7, 7});
    const std::string path = dir_.path() + "/tokens";
    detail::write_token_file(path, all, 1 << 20);
    return token_file_source(path, windows, {3, 3 + std::ssize(tokens)});
  }

  const TempDir dir_;
};

TEST_F(TokenSources, TargetsAreTheNextTokens) {
  const std::vector<int32_t> tokens = {10, 11, 12, 13, 14, 15, 16, 17};
  for (const SourcePtr& source : {token_source(tokens, {.context = 3}), streamed(tokens, {.context = 3})}) {
    const Windows got = windows_of(*source, {0, 4, 1});
    EXPECT_EQ(got.inputs, (std::vector<int32_t>{10, 11, 12, 14, 15, 16, 11, 12, 13}));
    EXPECT_EQ(got.targets, (std::vector<int32_t>{11, 12, 13, 15, 16, 17, 12, 13, 14}));
    ASSERT_EQ(source->fields().size(), 2u);
    EXPECT_EQ(source->fields()[0].name, "inputs");
    EXPECT_EQ(source->fields()[1].name, "targets");
    EXPECT_EQ(source->fields()[1].example, (Type{i32, {3}}));
  }
}

TEST_F(TokenSources, SmallVocabulariesTakeOneBytePerToken) {
  EXPECT_EQ(token_source(counting(100, 256), {.context = 4})->resident().at("tokens").dtype(), u8);
  EXPECT_EQ(token_source(counting(300, 257), {.context = 4})->resident().at("tokens").dtype(), i32);
}

TEST_F(TokenSources, StreamedEqualsResident) {
  for (const bool shuffle : {true, false})
    for (const int64_t vocabulary : {200, 70000})
      for (const int64_t n : {9, 17, 100, 4103})
        for (const int64_t context : {1, 4, 8}) {
          const TokenWindows windows{
              .context = context, .shuffle_offset = shuffle, .seed = 5, .vocabulary = vocabulary};
          std::vector<int32_t> tokens = counting(n);
          for (int32_t& id : tokens) id = static_cast<int32_t>(id * int64_t{48271} % vocabulary);
          const SourcePtr resident = token_source(tokens, windows), file = streamed(tokens, windows);
          ASSERT_EQ(resident->count(), file->count());
          ASSERT_TRUE(file->resident().empty());
          for (int64_t epoch = 0; epoch < 3; ++epoch) {
            const std::vector<int64_t> rows = rows_of(*resident, epoch);
            ASSERT_EQ(rows, rows_of(*file, epoch));
            ASSERT_EQ(windows_of(*resident, rows), windows_of(*file, rows)) << n << " tokens, context " << context;
          }
        }
}

TEST_F(TokenSources, EpochsUseEveryTokenAboutOnceWithOtherWindows) {
  constexpr int64_t kTokens = 1000, kContext = 16;
  const SourcePtr source = token_source(counting(kTokens), {.context = kContext, .seed = 3});
  EXPECT_EQ(source->count(), kTokens / kContext - 1);
  std::vector<int> uses(kTokens);
  std::set<int64_t> offsets;
  constexpr int kEpochs = 200;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<int64_t> rows = rows_of(*source, epoch);
    offsets.insert(rows[0]);
    EXPECT_GE(rows[0], 0);
    EXPECT_LE(rows.back() + kContext, kTokens - 1);
    std::set<int32_t> targets;
    for (const int32_t id : windows_of(*source, rows).targets) {
      EXPECT_TRUE(targets.insert(id).second) << "a target is used twice in an epoch";
      ++uses[static_cast<size_t>(id)];
    }
    EXPECT_GE(std::ssize(targets), kTokens - 2 * kContext);
  }
  EXPECT_EQ(std::ssize(offsets), kTokens - source->count() * kContext) << "every offset occurs";
  for (int64_t i = 1; i < kTokens; ++i) EXPECT_GT(uses[static_cast<size_t>(i)], 0) << "token " << i;
  for (int64_t i = 2 * kContext; i < kTokens - 2 * kContext; ++i) EXPECT_EQ(uses[static_cast<size_t>(i)], kEpochs);
}

TEST_F(TokenSources, OffsetsDependOnTheSeed) {
  const auto offsets = [](uint64_t seed) {
    const SourcePtr source = token_source(counting(5000), {.context = 64, .seed = seed});
    std::vector<int64_t> out;
    for (int64_t epoch = 0; epoch < 8; ++epoch) out.push_back(source->row(epoch, 0));
    return out;
  };
  EXPECT_EQ(offsets(1), offsets(1));
  EXPECT_NE(offsets(1), offsets(2));
}

TEST_F(TokenSources, EvaluationCoversEveryPredictionOnce) {
  for (const int64_t n : {2, 3, 8, 9, 10, 64, 65, 66, 100}) {
    const TokenWindows windows{.context = 8, .shuffle_offset = false};
    const SourcePtr source = token_source(counting(n), windows);
    EXPECT_EQ(source->count(), (n - 1 + 7) / 8) << n;
    EXPECT_EQ(rows_of(*source, 0), rows_of(*source, 5));
    const Windows got = windows_of(*source, rows_of(*source, 0));
    std::vector<int32_t> targets;
    for (size_t i = 0; i < got.targets.size(); ++i) {
      if (got.targets[i] < 0) {
        EXPECT_EQ(got.targets[i], -1);
        EXPECT_GE(static_cast<int64_t>(i), n - 1) << "only the end is padded";
      } else {
        EXPECT_EQ(got.inputs[i], got.targets[i] - 1);
        targets.push_back(got.targets[i]);
      }
      if (static_cast<int64_t>(i) >= n) {
        EXPECT_EQ(got.inputs[i], 0) << n;
      }
    }
    std::vector<int32_t> expected = counting(n);
    expected.erase(expected.begin());
    EXPECT_EQ(targets, expected);
  }
}

TEST_F(TokenSources, PartsHaveTheWindowsOfTheWhole) {
  for (const SourcePtr& whole :
       {token_source(counting(500), {.context = 10, .seed = 1}), streamed(counting(500), {.context = 10, .seed = 1})}) {
    const SourcePtr part = part_of(whole, 5, 20);
    EXPECT_EQ(part->count(), 15);
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      const std::vector<int64_t> all = rows_of(*whole, epoch), rows = rows_of(*part, epoch);
      EXPECT_EQ(rows, std::vector<int64_t>(all.begin() + 5, all.begin() + 20));
      EXPECT_EQ(windows_of(*part, rows), windows_of(*whole, rows));
    }
  }
}

TEST_F(TokenSources, WrongValuesAreErrors) {
  EXPECT_THROWS(
      token_source(counting(8), {.context = 8}, "a"), Error,
      "tokens: a has 8 tokens, but a window of context 8 needs at least 9; give more text or a smaller context");
  EXPECT_EQ(token_source(counting(9), {.context = 8})->count(), 1);
  EXPECT_THROWS(token_source({4}, {.context = 8, .shuffle_offset = false}, "a"), Error,
                "tokens: a has 1 tokens, but a prediction needs at least 2; give more text");
  EXPECT_THROWS(token_source(counting(8), {.context = 0}), Error, "tokens: a context of 0 tokens; use 1 to ");
  EXPECT_THROWS(token_source(counting(8), {.context = int64_t{1} << 62}), Error, "tokens: a context of 46116");
  EXPECT_THROWS(token_source(counting(8), {.context = 2, .vocabulary = -1}), Error, "a vocabulary of -1 tokens");
  EXPECT_THROWS(token_source({1, 2, 9, 1}, {.context = 2, .vocabulary = 9}, "a"), Error,
                "tokens: a has token 9 at position 2, but the vocabulary has 9 tokens");
  EXPECT_THROWS(token_source({1, -2, 9, 1}, {.context = 2}, "a"), Error, "at position 1");

  const SourcePtr file = streamed({1, 2, 3, 1, 1, 1, 9, 1}, {.context = 2, .vocabulary = 9});
  EXPECT_NO_THROW(windows_of(*file, {0}));
  EXPECT_THROWS(windows_of(*file, {4}), Error, "/tokens has token 9 at position 9, but the vocabulary has 9 tokens");
  EXPECT_THROWS(token_file_source(dir_.path() + "/tokens", {.context = 2}, {4, 99}), Error,
                "the range 4 to 99 of " + dir_.path() + "/tokens, which has 15 tokens");
  EXPECT_THROWS(token_file_source(dir_.path() + "/tokens", {.context = 200}), Error, "needs at least 201");
}

}  // namespace
}  // namespace lockstep
