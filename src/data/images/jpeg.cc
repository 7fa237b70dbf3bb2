// JPEG images by libjpeg-turbo.
//
// libjpeg reports an error by calling error_exit, which must not return: it jumps back to setjmp(). A jump skips
// destructors, so the functions that call setjmp() have no objects with destructors, and everything they need is in
// JpegState.
#include "base/check.h"
#include "data/images/image_codec.h"

#ifdef LOCKSTEP_WITH_JPEG

#include <csetjmp>
#include <cstdio>
// jpeglib.h needs <cstdio> before it.
#include <jerror.h>
#include <jpeglib.h>

namespace lockstep::detail {
namespace {

struct JpegState {
  jpeg_decompress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf jump = {};
  char message[JMSG_LENGTH_MAX] = "";

  JpegState() = default;
  JpegState(const JpegState&) = delete;
  JpegState& operator=(const JpegState&) = delete;
  ~JpegState() { jpeg_destroy_decompress(&jpeg); }
};

[[noreturn]] void jpeg_failed(j_common_ptr jpeg) {
  auto* state = static_cast<JpegState*>(jpeg->client_data);
  jpeg->err->format_message(jpeg, state->message);
  std::longjmp(state->jump, 1);
}

// Pixels would be missing or wrong after these warnings; others are harmless.
void jpeg_warned(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  switch (jpeg->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_BOGUS_PROGRESSION:
      jpeg_failed(jpeg);
    default:
      return;
  }
}

void jpeg_prints_nothing(j_common_ptr) {}

// A progressive image with a hostile number of scans would take very long.
void jpeg_progressed(j_common_ptr common) {
  constexpr int kMaxScans = 1000;
  auto* jpeg = reinterpret_cast<j_decompress_ptr>(common);
  if (jpeg->input_scan_number <= kMaxScans) return;
  auto* state = static_cast<JpegState*>(common->client_data);
  std::snprintf(state->message, sizeof(state->message), "it has more than %d scans", kMaxScans);
  std::longjmp(state->jump, 1);
}

// Reads the header. Returns false if that fails.
bool start_jpeg(JpegState& state, const uint8_t* file, size_t size) {
  state.jpeg.err = jpeg_std_error(&state.errors);
  state.errors.error_exit = jpeg_failed;
  state.errors.emit_message = jpeg_warned;
  state.errors.output_message = jpeg_prints_nothing;
  state.jpeg.client_data = &state;
  if (setjmp(state.jump)) return false;
  jpeg_create_decompress(&state.jpeg);
  state.progress.progress_monitor = jpeg_progressed;
  state.jpeg.progress = &state.progress;
  jpeg_mem_src(&state.jpeg, file, size);
  jpeg_read_header(&state.jpeg, TRUE);
  state.jpeg.out_color_space = state.jpeg.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  return true;
}

// Reads the pixels. Returns false if that fails.
bool finish_jpeg(JpegState& state, uint8_t* pixels, size_t row_bytes) {
  if (setjmp(state.jump)) return false;
  jpeg_start_decompress(&state.jpeg);
  while (state.jpeg.output_scanline < state.jpeg.output_height) {
    JSAMPROW row = pixels + state.jpeg.output_scanline * row_bytes;
    jpeg_read_scanlines(&state.jpeg, &row, 1);
  }
  jpeg_finish_decompress(&state.jpeg);
  return true;
}

[[noreturn]] void throw_jpeg_error(const JpegState& state, const std::string& where) {
  throw_error("read {}: the JPEG image cannot be decoded: {}; replace it", where, state.message);
}

// Repeats each gray value three times.
void gray_to_rgb(DecodedImage& image) {
  std::vector<uint8_t> rgb;
  rgb.reserve(3 * image.pixels.size());
  for (const uint8_t value : image.pixels) rgb.insert(rgb.end(), 3, value);
  image.pixels = std::move(rgb);
  image.channels = 3;
}

}  // namespace

DecodedImage decode_jpeg(std::span<const uint8_t> file, const std::string& where, bool color) {
  JpegState state;
  if (!start_jpeg(state, file.data(), file.size())) throw_jpeg_error(state, where);
  const int64_t components = state.jpeg.num_components;
  DecodedImage image{
      .rows = state.jpeg.image_height, .cols = state.jpeg.image_width, .channels = components, .pixels = {}};
  check_image_size(where, image.rows, image.cols, std::ssize(file));
  if (components != 1 && components != 3)
    throw_error("read {}: a JPEG file with {} color components; convert it to RGB or gray", where, components);
  image.pixels.resize(static_cast<size_t>(image.rows * image.cols * components));
  if (!finish_jpeg(state, image.pixels.data(), static_cast<size_t>(image.cols * components)))
    throw_jpeg_error(state, where);
  if (color && components == 1) gray_to_rgb(image);
  return image;
}

}  // namespace lockstep::detail

#else

namespace lockstep::detail {

DecodedImage decode_jpeg(std::span<const uint8_t>, const std::string& where, bool) {
  throw_error("read {}: this build has no libjpeg; install libjpeg-dev and build again", where);
}

}  // namespace lockstep::detail

#endif
