#include "lockstep/augment.h"

#include <gtest/gtest.h>

#include <map>

#include "array/near.h"
#include "base/throws.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

constexpr int64_t kRows = 5, kCols = 6;

// Images with the pixels 1, 2, 3, ... each.
Array numbered(int64_t n, int64_t channels = 0) {
  Shape shape = {n, kRows, kCols};
  if (channels > 0) shape.push_back(channels);
  std::vector<uint8_t> pixels;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < count(shape) / n; ++k) pixels.push_back(static_cast<uint8_t>(k + 1));
  return Array::from(pixels, shape);
}

Array positions(int64_t n) { return arange(n); }

// The image numbered(1) shifted and perhaps flipped, as a crop of the padded image.
std::vector<uint8_t> moved(int64_t down, int64_t right, bool flip) {
  std::vector<uint8_t> out;
  for (int64_t y = 0; y < kRows; ++y)
    for (int64_t x = 0; x < kCols; ++x) {
      const int64_t from_y = y + down, from_x = (flip ? kCols - 1 - x : x) + right;
      const bool inside = from_y >= 0 && from_y < kRows && from_x >= 0 && from_x < kCols;
      out.push_back(inside ? static_cast<uint8_t>(from_y * kCols + from_x + 1) : 0);
    }
  return out;
}

// Counts each distinct image of a batch.
std::map<std::vector<uint8_t>, int> distinct_images(const Array& images) {
  std::map<std::vector<uint8_t>, int> out;
  const std::vector<uint8_t> all = images.to_vector<uint8_t>();
  const auto each = static_cast<std::ptrdiff_t>(all.size() / static_cast<size_t>(images.shape(0)));
  for (auto at = all.begin(); at != all.end(); at += each) ++out[std::vector<uint8_t>(at, at + each)];
  return out;
}

TEST(Augment, CropsAreAllShiftsOfThePaddedImage) {
  const int64_t n = 900;
  const auto found = distinct_images(nn::augment(numbered(n), random::key(1), positions(n), {.crop = 1, .flip = true}));
  std::map<std::vector<uint8_t>, int> expected;
  for (int64_t down = -1; down <= 1; ++down)
    for (int64_t right = -1; right <= 1; ++right)
      for (const bool flip : {false, true}) ++expected[moved(down, right, flip)];
  ASSERT_EQ(expected.size(), 18u);
  ASSERT_EQ(found.size(), 18u);
  for (const auto& [image, times] : found) {
    EXPECT_TRUE(expected.contains(image));
    EXPECT_GT(times, 20);  // 50 expected
    EXPECT_LT(times, 90);
  }
}

TEST(Augment, FlipReversesHalfOfTheImages) {
  const int64_t n = 400;
  const auto found = distinct_images(nn::augment(numbered(n), random::key(2), positions(n), {.flip = true}));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_GT(found.at(moved(0, 0, false)), 150);
  EXPECT_GT(found.at(moved(0, 0, true)), 150);
}

TEST(Augment, CutoutClearsASquareAnywhere) {
  const int64_t n = 600;
  const Array images = nn::augment(numbered(n), random::key(3), positions(n), {.cutout = 2});
  const auto found = distinct_images(images);
  EXPECT_EQ(found.size(), static_cast<size_t>(kRows * kCols));  // a center each
  const std::vector<uint8_t> whole = moved(0, 0, false);
  for (const auto& [image, times] : found) {
    int cleared = 0;
    for (size_t i = 0; i < image.size(); ++i) {
      EXPECT_TRUE(image[i] == whole[i] || image[i] == 0);
      cleared += image[i] == 0 ? 1 : 0;
    }
    EXPECT_TRUE(cleared == 4 || cleared == 2 || cleared == 1) << cleared;  // less at the border
  }
}

TEST(Augment, ChannelsMoveTogether) {
  const int64_t n = 50;
  const nn::AugmentOptions options{.crop = 2, .flip = true, .cutout = 2};
  const std::vector<uint8_t> gray =
      nn::augment(numbered(n), random::key(4), positions(n), options).to_vector<uint8_t>();
  const Array same = repeat(expand_dims(numbered(n), 3), 3, 3);
  const std::vector<uint8_t> color = nn::augment(same, random::key(4), positions(n), options).to_vector<uint8_t>();
  for (size_t i = 0; i < gray.size(); ++i)
    for (size_t c = 0; c < 3; ++c) ASSERT_EQ(color[3 * i + c], gray[i]);
}

TEST(Augment, ResultsDependOnThePositionsOnly) {
  const int64_t n = 24;
  const nn::AugmentOptions options{.crop = 2, .flip = true, .cutout = 3};
  const Array images = numbered(n, 3), key = random::key(5);
  const auto f = [&](const Array& part, const Array& at) { return nn::augment(part, key, at, options); };
  const std::vector<uint8_t> whole = f(images, positions(n)).to_vector<uint8_t>();
  EXPECT_EQ(jit(f)(images, positions(n)).to_vector<uint8_t>(), whole);
  EXPECT_EQ(jit(f)(images, astype(positions(n), i64)).to_vector<uint8_t>(), whole);
  std::vector<uint8_t> parts;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 7}, {7, 8}, {8, 24}}) {
    const std::vector<uint8_t> part =
        f(slice(images, {begin}, {end}), slice(positions(n), {begin}, {end})).to_vector<uint8_t>();
    parts.insert(parts.end(), part.begin(), part.end());
  }
  EXPECT_EQ(parts, whole);
  EXPECT_NE(nn::augment(images, random::key(6), positions(n), options).to_vector<uint8_t>(), whole);
}

TEST(Augment, ResultsDoNotDependOnTheNumberOfDevices) {
  const int64_t n = 24;
  const Array images = numbered(n, 3), key = random::key(5);
  const auto f = [&](const Array& batch, const Array& at) {
    return nn::normalize(nn::augment(batch, key, at, {.crop = 2, .flip = true, .cutout = 3}), {0.5}, {0.25});
  };
  const std::vector<float> expected = jit(f)(images, positions(n)).to_vector<float>();
  for (const int64_t devices : {2, 4, 8}) {
    const NamedSharding sharding(make_mesh({{"data", devices}}), P("data"));
    const Array sharded = jit(f)(device_put(images, sharding), device_put(positions(n), sharding));
    EXPECT_EQ(sharded.to_vector<float>(), expected) << devices << " devices";
    EXPECT_FALSE(sharded.is_fully_replicated());
  }
}

TEST(Augment, WithoutOptionsImagesAreUnchanged) {
  EXPECT_EQ(nn::augment(numbered(3), random::key(1), positions(3), {}).to_vector<uint8_t>(),
            numbered(3).to_vector<uint8_t>());
}

TEST(Augment, WrongArgumentsAreErrors) {
  const auto augmented = [](const Array& images, const Array& at, const nn::AugmentOptions& options) {
    static_cast<void>(nn::augment(images, random::key(1), at, options));
  };
  EXPECT_THROWS(augmented(zeros({3, 4}), positions(3), {.flip = true}), Error,
                "nn::augment: images are f32[3,4]; give");
  EXPECT_THROWS(augmented(numbered(3), positions(4), {.flip = true}), Error,
                "nn::augment: the positions of 3 images are i32[4]; give one integer for each");
  EXPECT_THROWS(augmented(numbered(3), zeros({3}), {.flip = true}), Error, "the positions of 3 images are f32[3]");
  EXPECT_THROWS(augmented(numbered(3), positions(3), {.crop = -1}), Error, "nn::augment: crop -1 and cutout 0");
}

TEST(Normalize, ChannelsHaveTheirOwnMeans) {
  const Array images = Array::from(std::vector<uint8_t>{0, 51, 255, 255, 102, 0}, {1, 1, 2, 3});
  const std::vector<float> x = nn::normalize(images, {0, 0.2, 0.5}, {1, 2, 0.5}).to_vector<float>();
  const std::vector<float> expected = {0, 0, 1, 1, 0.1f, -1};
  ASSERT_EQ(x.size(), expected.size());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], expected[i], 1e-6);
  EXPECT_EQ(nn::normalize(images, {}, {}, bf16).dtype(), bf16);
  EXPECT_NEAR(nn::normalize(numbered(1), {0.5}, {0.25}).to_vector<float>()[0], (1 / 255.0 - 0.5) / 0.25, 1e-6);
}

TEST(Normalize, WrongArgumentsAreErrors) {
  const auto normalized = [](const std::vector<double>& mean, const std::vector<double>& sd, DType dtype) {
    static_cast<void>(nn::normalize(numbered(1, 3), mean, sd, dtype));
  };
  EXPECT_THROWS(normalized({1, 2}, {}, f32), Error,
                "nn::normalize: mean has 2 values for images u8[1,5,6,3] with 3 channels");
  EXPECT_THROWS(normalized({}, {0}, f32), Error, "nn::normalize: a standard deviation of 0; it must be positive");
  EXPECT_THROWS(normalized({}, {}, i32), Error, "nn::normalize: the type is i32; give a floating type");
}

}  // namespace
}  // namespace lockstep
