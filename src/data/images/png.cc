// PNG images by libpng.
//
// libpng reports an error by calling error_fn, which must not return: it jumps back to setjmp(). A jump skips destructors,
// so the functions that call setjmp() have no objects with destructors, and everything they need is in PngState.
#include "base/check.h"
#include "data/images/image_codec.h"

#ifdef LOCKSTEP_WITH_PNG

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

namespace lockstep::detail {
namespace {

struct PngState {
  std::span<const uint8_t> rest;
  bool color = false;
  png_structp png = nullptr;
  png_infop info = nullptr;
  char message[160] = "";
  uint32_t rows = 0, cols = 0;
  size_t row_bytes = 0;

  PngState() = default;
  PngState(const PngState&) = delete;
  PngState& operator=(const PngState&) = delete;
  ~PngState() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void png_failed(png_structp png, png_const_charp message) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  std::snprintf(state->message, sizeof(state->message), "%s", message);
  png_longjmp(png, 1);
}

void png_warned(png_structp, png_const_charp) {}

void png_read_bytes(png_structp png, png_bytep out, size_t count) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (count > state->rest.size()) png_error(png, "the file ends early");
  std::memcpy(out, state->rest.data(), count);
  state->rest = state->rest.subspan(count);
}

// Reads the header and requests 8 bits per channel, without palette and alpha. Returns false if that fails.
bool start_png(PngState& state) {
  if (setjmp(png_jmpbuf(state.png))) return false;
  png_set_read_fn(state.png, &state, png_read_bytes);
  png_set_user_limits(state.png, 0x7fffffff, 0x7fffffff);  // the number of pixels was checked
  png_set_chunk_malloc_max(state.png, 8 << 20);
  png_set_chunk_cache_max(state.png, 128);
  png_read_info(state.png, state.info);
  const int type = png_get_color_type(state.png, state.info), depth = png_get_bit_depth(state.png, state.info);
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(state.png);
  if (type == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(state.png);
  if (depth == 16) png_set_scale_16(state.png);
  png_set_strip_alpha(state.png);
  if (state.color && (type & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(state.png);
  png_set_interlace_handling(state.png);
  png_read_update_info(state.png, state.info);
  state.rows = png_get_image_height(state.png, state.info);
  state.cols = png_get_image_width(state.png, state.info);
  state.row_bytes = png_get_rowbytes(state.png, state.info);
  return true;
}

// Reads the pixels and the rest of the file. Returns false if that fails.
bool finish_png(PngState& state, png_bytepp rows) {
  if (setjmp(png_jmpbuf(state.png))) return false;
  png_read_image(state.png, rows);
  png_read_end(state.png, nullptr);
  return true;
}

[[noreturn]] void throw_png_error(const PngState& state, const std::string& where) {
  throw_error("read {}: the PNG image cannot be decoded: {}; replace it", where, state.message);
}

}  // namespace

DecodedImage decode_png(std::span<const uint8_t> file, const std::string& where, bool color) {
  PngState state;
  state.rest = file;
  state.color = color;
  state.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, png_failed, png_warned);
  if (state.png) state.info = png_create_info_struct(state.png);
  if (!state.info) throw OutOfMemory("read " + where + ": out of memory for the PNG decoder; use a machine with more");
  if (!start_png(state)) throw_png_error(state, where);
  check_image_size(where, state.rows, state.cols, std::ssize(file));
  DecodedImage image{.rows = state.rows,
                     .cols = state.cols,
                     .channels = static_cast<int64_t>(state.row_bytes / state.cols),
                     .pixels = std::vector<uint8_t>(state.row_bytes * state.rows)};
  if (state.row_bytes % state.cols != 0 || (image.channels != 1 && image.channels != 3))
    throw_error("read {}: a PNG image with {} bytes in a row of {} pixels; convert it to 8-bit gray or RGB", where,
                state.row_bytes, state.cols);
  std::vector<png_bytep> rows(state.rows);
  for (size_t row = 0; row < rows.size(); ++row) rows[row] = image.pixels.data() + row * state.row_bytes;
  if (!finish_png(state, rows.data())) throw_png_error(state, where);
  return image;
}

bool can_decode_png() { return true; }

}  // namespace lockstep::detail

#else

namespace lockstep::detail {

DecodedImage decode_png(std::span<const uint8_t>, const std::string& where, bool) {
  throw_error("read {}: this build has no libpng; install libpng-dev and build again", where);
}

bool can_decode_png() { return false; }

}  // namespace lockstep::detail

#endif
