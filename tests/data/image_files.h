// Writes PNG and JPEG files with libpng and libjpeg, for tests.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"

#if __has_include(<png.h>) && __has_include(<jpeglib.h>)
#define LOCKSTEP_TEST_IMAGES 1
#include <jpeglib.h>
#include <png.h>
#endif

namespace lockstep {

#ifdef LOCKSTEP_TEST_IMAGES

struct PngOptions {
  int64_t rows = 0, cols = 0;
  int type = PNG_COLOR_TYPE_GRAY;
  int depth = 8;
  bool interlaced = false;
  std::vector<png_color> palette = {};
};

// `bytes` are the rows as PNG stores them: with several pixels in a byte, or two bytes for a 16-bit value.
inline std::vector<uint8_t> encode_png(const PngOptions& options, std::vector<uint8_t> bytes) {
  std::vector<uint8_t> out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  if (setjmp(png_jmpbuf(png))) std::abort();
  png_set_write_fn(
      png, &out,
      [](png_structp p, png_bytep data, size_t count) {
        auto* to = static_cast<std::vector<uint8_t>*>(png_get_io_ptr(p));
        to->insert(to->end(), data, data + count);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(options.cols), static_cast<png_uint_32>(options.rows), options.depth,
               options.type, options.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_compression_level(png, 1);
  if (!options.palette.empty())
    png_set_PLTE(png, info, options.palette.data(), static_cast<int>(options.palette.size()));
  png_write_info(png, info);
  const size_t row_bytes = bytes.size() / static_cast<size_t>(options.rows);
  std::vector<png_bytep> rows;
  for (int64_t i = 0; i < options.rows; ++i) rows.push_back(bytes.data() + static_cast<size_t>(i) * row_bytes);
  png_write_image(png, rows.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return out;
}

inline std::vector<uint8_t> gray_png(int64_t rows, int64_t cols, std::vector<uint8_t> pixels) {
  return encode_png({.rows = rows, .cols = cols}, std::move(pixels));
}
inline std::vector<uint8_t> rgb_png(int64_t rows, int64_t cols, std::vector<uint8_t> pixels) {
  return encode_png({.rows = rows, .cols = cols, .type = PNG_COLOR_TYPE_RGB}, std::move(pixels));
}

struct JpegOptions {
  int64_t rows = 0, cols = 0;
  J_COLOR_SPACE space = JCS_RGB;
  bool progressive = false;
};

inline std::vector<uint8_t> encode_jpeg(const JpegOptions& options, std::vector<uint8_t> pixels) {
  jpeg_compress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_width = static_cast<JDIMENSION>(options.cols);
  jpeg.image_height = static_cast<JDIMENSION>(options.rows);
  jpeg.input_components = options.space == JCS_GRAYSCALE ? 1 : options.space == JCS_RGB ? 3 : 4;
  jpeg.in_color_space = options.space;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 95, TRUE);
  if (options.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  const size_t row_bytes = pixels.size() / static_cast<size_t>(options.rows);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = pixels.data() + jpeg.next_scanline * row_bytes;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::vector<uint8_t> out(memory, memory + size);
  jpeg_destroy_compress(&jpeg);
  std::free(memory);
  return out;
}

#endif

// Writes a file and the folders above it.
inline void write_in(const std::string& folder, const std::string& name, const std::vector<uint8_t>& bytes) {
  const std::string path = folder + "/" + name;
  FileSystem::real().make_dirs(parent_dir(path));
  FileSystem::real().write(path, bytes);
}

}  // namespace lockstep
