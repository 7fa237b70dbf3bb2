#include "data/images/resize.h"

#include <gtest/gtest.h>

namespace lockstep::detail {
namespace {

using Bytes = std::vector<uint8_t>;

DecodedImage gray(int64_t rows, int64_t cols, Bytes pixels) { return {rows, cols, 1, std::move(pixels)}; }

TEST(Resize, ImageOfTheSameSizeIsUnchanged) {
  EXPECT_EQ(resize_and_crop(gray(2, 2, {1, 2, 3, 4}), 2, 2).pixels, (Bytes{1, 2, 3, 4}));
}

TEST(Resize, ConstantImagesStayConstant) {
  for (const auto& [rows, cols] : {std::pair{1, 1}, {3, 7}, {50, 20}, {64, 64}}) {
    const DecodedImage out = resize_and_crop({30, 40, 3, Bytes(3600, 93)}, rows, cols);
    EXPECT_EQ(out.rows, rows);
    EXPECT_EQ(out.cols, cols);
    EXPECT_EQ(out.pixels, Bytes(static_cast<size_t>(rows * cols * 3), 93));
  }
}

TEST(Resize, HalfTheSizeIsAWeightedMean) {
  // Around a result pixel, source pixels have the weights 1/8, 3/8, 3/8, 1/8 in each direction; at the border, what is
  // outside has no weight.
  const DecodedImage out = resize_and_crop(gray(4, 4, {0, 0, 80, 80, 0, 0, 80, 80, 0, 0, 80, 80, 0, 0, 80, 80}), 2, 2);
  EXPECT_EQ(out.pixels, (Bytes{11, 69, 11, 69}));  // 80 / 7 and 80 * 6 / 7
}

TEST(Resize, TwiceTheSizeInterpolates) {
  // Centers of result pixels are at 1/4 and 3/4 of source pixels.
  EXPECT_EQ(resize_and_crop(gray(2, 2, {0, 100, 0, 100}), 4, 4).pixels,
            (Bytes{0, 25, 75, 100, 0, 25, 75, 100, 0, 25, 75, 100, 0, 25, 75, 100}));
}

TEST(Resize, OtherProportionsAreCroppedAtTheCenter) {
  EXPECT_EQ(resize_and_crop(gray(2, 6, {1, 1, 50, 50, 9, 9, 1, 1, 50, 50, 9, 9}), 2, 2).pixels,
            (Bytes{50, 50, 50, 50}));
  EXPECT_EQ(resize_and_crop(gray(6, 1, {1, 1, 60, 70, 9, 9}), 2, 1).pixels, (Bytes{60, 70}));
}

TEST(Resize, ChannelsAreSeparate) {
  const DecodedImage out = resize_and_crop({2, 2, 3, {10, 20, 30, 10, 20, 30, 10, 20, 30, 10, 20, 30}}, 1, 1);
  EXPECT_EQ(out.pixels, (Bytes{10, 20, 30}));
}

}  // namespace
}  // namespace lockstep::detail
