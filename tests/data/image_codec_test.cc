#include "data/images/image_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/throws.h"
#include "data/image_files.h"

#ifdef LOCKSTEP_TEST_IMAGES

namespace lockstep::detail {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes ramp(int64_t count) {
  Bytes out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<uint8_t>(37 * i + 11));
  return out;
}

// A smooth image, which JPEG reproduces well.
Bytes smooth(int64_t rows, int64_t cols, int64_t channels) {
  Bytes out;
  for (int64_t y = 0; y < rows; ++y)
    for (int64_t x = 0; x < cols; ++x)
      for (int64_t c = 0; c < channels; ++c) out.push_back(static_cast<uint8_t>(40 + 3 * y + 2 * x + 20 * c));
  return out;
}

void expect_near(const Bytes& a, const Bytes& b, int tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << "byte " << i;
}

TEST(ImageCodec, PngIsLossless) {
  const DecodedImage gray = decode_image(gray_png(5, 7, ramp(35)), "gray.png");
  EXPECT_EQ(gray.rows, 5);
  EXPECT_EQ(gray.cols, 7);
  EXPECT_EQ(gray.channels, 1);
  EXPECT_EQ(gray.pixels, ramp(35));
  const DecodedImage color = decode_image(rgb_png(5, 7, ramp(105)), "color.png");
  EXPECT_EQ(color.channels, 3);
  EXPECT_EQ(color.pixels, ramp(105));
}

TEST(ImageCodec, InterlacedPngIsTheSameImage) {
  const Bytes pixels = ramp(9 * 11 * 3);
  const Bytes file = encode_png({.rows = 9, .cols = 11, .type = PNG_COLOR_TYPE_RGB, .interlaced = true}, pixels);
  EXPECT_EQ(decode_image(file, "x.png").pixels, pixels);
}

TEST(ImageCodec, SixteenBitsAreRoundedToEight) {
  const Bytes file = encode_png({.rows = 1, .cols = 3, .depth = 16}, {0x12, 0x34, 0xff, 0xff, 0x00, 0x80});
  const Bytes expected = {static_cast<uint8_t>(std::lround(0x1234 * 255.0 / 65535)), 255, 0};
  EXPECT_EQ(decode_image(file, "x.png").pixels, expected);
}

TEST(ImageCodec, FewBitsBecomeEight) {
  EXPECT_EQ(decode_image(encode_png({.rows = 1, .cols = 8, .depth = 1}, {0b10100001}), "x.png").pixels,
            (Bytes{255, 0, 255, 0, 0, 0, 0, 255}));
  EXPECT_EQ(decode_image(encode_png({.rows = 1, .cols = 4, .depth = 2}, {0b00011011}), "x.png").pixels,
            (Bytes{0, 85, 170, 255}));
  EXPECT_EQ(decode_image(encode_png({.rows = 1, .cols = 2, .depth = 4}, {0x5f}), "x.png").pixels, (Bytes{85, 255}));
}

TEST(ImageCodec, PaletteBecomesRgb) {
  const Bytes file = encode_png(
      {.rows = 1, .cols = 3, .type = PNG_COLOR_TYPE_PALETTE, .palette = {{10, 20, 30}, {40, 50, 60}}}, {1, 0, 1});
  const DecodedImage image = decode_image(file, "x.png");
  EXPECT_EQ(image.channels, 3);
  EXPECT_EQ(image.pixels, (Bytes{40, 50, 60, 10, 20, 30, 40, 50, 60}));
}

TEST(ImageCodec, AlphaIsDropped) {
  const Bytes rgba = encode_png({.rows = 1, .cols = 2, .type = PNG_COLOR_TYPE_RGB_ALPHA}, {1, 2, 3, 0, 4, 5, 6, 255});
  EXPECT_EQ(decode_image(rgba, "x.png").pixels, (Bytes{1, 2, 3, 4, 5, 6}));
  const Bytes gray = encode_png({.rows = 1, .cols = 2, .type = PNG_COLOR_TYPE_GRAY_ALPHA}, {7, 0, 8, 128});
  EXPECT_EQ(decode_image(gray, "x.png").pixels, (Bytes{7, 8}));
}

TEST(ImageCodec, GrayImageHasThreeEqualChannelsOnRequest) {
  EXPECT_EQ(decode_image(gray_png(1, 2, {9, 200}), "x.png", 3).pixels, (Bytes{9, 9, 9, 200, 200, 200}));
  const Bytes jpeg = encode_jpeg({.rows = 8, .cols = 8, .space = JCS_GRAYSCALE}, Bytes(64, 77));
  EXPECT_EQ(decode_image(jpeg, "x.jpg", 3).pixels, Bytes(192, 77));
  EXPECT_THROWS(decode_image(rgb_png(1, 1, {1, 2, 3}), "c.png", 1), Error, "read c.png: it is a color image");
}

TEST(ImageCodec, JpegIsCloseToTheOriginal) {
  for (const bool progressive : {false, true}) {
    const Bytes color = smooth(20, 30, 3), gray = smooth(20, 30, 1);
    expect_near(decode_image(encode_jpeg({.rows = 20, .cols = 30, .progressive = progressive}, color), "x.jpg").pixels,
                color, 6);
    const DecodedImage image = decode_image(
        encode_jpeg({.rows = 20, .cols = 30, .space = JCS_GRAYSCALE, .progressive = progressive}, gray), "x.jpg");
    EXPECT_EQ(image.channels, 1);
    expect_near(image.pixels, gray, 3);
  }
}

TEST(ImageCodec, HeadersHaveTheSizeOfTheImage) {
  const TempDir dir;
  write_in(dir.path(), "a.png", rgb_png(3, 4, ramp(36)));
  write_in(dir.path(), "b.jpg", encode_jpeg({.rows = 30, .cols = 17}, smooth(30, 17, 3)));
  const ImageHeader png = read_image_header(dir.path() + "/a.png"), jpeg = read_image_header(dir.path() + "/b.jpg");
  EXPECT_EQ(png.rows, 3);
  EXPECT_EQ(png.cols, 4);
  EXPECT_EQ(png.channels, 3);
  EXPECT_EQ(jpeg.rows, 30);
  EXPECT_EQ(jpeg.cols, 17);
  EXPECT_EQ(jpeg.channels, 3);
}

TEST(ImageCodec, TruncatedFilesAreErrorsThatNameTheFile) {
  const Bytes png = rgb_png(40, 40, ramp(4800)), jpeg = encode_jpeg({.rows = 40, .cols = 40}, smooth(40, 40, 3));
  const Bytes progressive = encode_jpeg({.rows = 40, .cols = 40, .progressive = true}, smooth(40, 40, 3));
  for (const Bytes* file : {&png, &jpeg, &progressive}) {
    // A JPEG file without its last bytes, the end marker, is complete.
    for (size_t size = 1; size + 8 < file->size(); size += 1 + file->size() / 40)
      EXPECT_THROWS(decode_image(std::span(*file).first(size), "dir/cut.png", 0), Error, "read dir/cut.png: ");
  }
  EXPECT_THROWS(decode_image(std::span(png).first(png.size() / 2), "cut.png"), Error,
                "read cut.png: the PNG image cannot be decoded: the file ends early; replace it");
  EXPECT_THROWS(decode_image(std::span(jpeg).first(jpeg.size() / 2), "cut.jpg"), Error,
                "read cut.jpg: the JPEG image cannot be decoded: ");
}

TEST(ImageCodec, ChangedBytesDecodeOrAreErrors) {
  const Bytes files[] = {rgb_png(16, 16, ramp(768)), encode_jpeg({.rows = 16, .cols = 16}, smooth(16, 16, 3)),
                         encode_jpeg({.rows = 16, .cols = 16, .progressive = true}, smooth(16, 16, 3))};
  std::mt19937 random(7);
  int rejected = 0;
  for (const Bytes& file : files) {
    for (int i = 0; i < 400; ++i) {
      Bytes changed = file;
      for (int k = 0; k < 3; ++k) changed[random() % changed.size()] = static_cast<uint8_t>(random());
      try {
        decode_image(changed, "x");
      } catch (const Error&) {
        ++rejected;
      }
    }
  }
  EXPECT_GT(rejected, 300);
}

TEST(ImageCodec, HostileSizesAreRefusedBeforeMemoryIsAllocated) {
  Bytes png = gray_png(1, 1, {0});
  png[16] = 0x7f;  // the width
  EXPECT_THROWS(decode_image(png, "big.png"), Error, "read big.png: an image of 1 x 2130706433 pixels; at most");
  png[16] = 0x00;
  png[17] = 0x7f;
  EXPECT_THROWS(decode_image(png, "big.png"), Error, "pixels, which cannot be in its");
  Bytes jpeg = encode_jpeg({.rows = 8, .cols = 8}, Bytes(192));
  for (size_t i = 2; i + 8 < jpeg.size(); ++i)
    if (jpeg[i] == 0xff && jpeg[i + 1] == 0xc0)
      for (size_t k = 5; k < 9; ++k) jpeg[i + k] = 0xff;  // rows and columns
  EXPECT_THROWS(decode_image(jpeg, "big.jpg"), Error, "read big.jpg: an image of 65535 x 65535 pixels; at most");
}

TEST(ImageCodec, OtherFilesAreErrors) {
  EXPECT_THROWS(decode_image({}, "x.png"), Error, "read x.png: the file is empty");
  EXPECT_THROWS(decode_image(Bytes{'h', 'e', 'l', 'l', 'o'}, "x.png"), Error, "it is neither a PNG nor a JPEG file");
  const Bytes cmyk = encode_jpeg({.rows = 8, .cols = 8, .space = JCS_CMYK}, Bytes(256));
  EXPECT_THROWS(decode_image(cmyk, "x.jpg"), Error, "read x.jpg: a JPEG file with 4 color components (CMYK); convert");
}

TEST(ImageCodec, NamesOfImagesEndWithPngOrJpeg) {
  for (const char* name : {"a.png", "a.PNG", "b.jpg", "b.JPEG", "c.Jpg"}) EXPECT_TRUE(is_image_name(name)) << name;
  for (const char* name : {"a.gif", "png", "a.png.txt", ""}) EXPECT_FALSE(is_image_name(name)) << name;
}

}  // namespace
}  // namespace lockstep::detail

#endif
