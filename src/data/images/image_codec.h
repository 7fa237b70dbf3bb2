// Decoding of PNG and JPEG images to bytes. Files are not trusted: sizes are checked before memory is allocated, and
// errors of libpng and libjpeg become exceptions that name the file. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace lockstep::detail {

enum class ImageFormat { png, jpeg };

struct ImageHeader {
  ImageFormat format = ImageFormat::png;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t channels = 0;  // after decoding: 1 gray, 3 RGB
};

// Pixels (rows, cols, channels), 0 to 255.
struct DecodedImage {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t channels = 0;
  std::vector<uint8_t> pixels;
};

// The largest number of pixels of an image, and the largest file.
inline constexpr int64_t kMaxPixels = int64_t{1} << 27;
inline constexpr int64_t kMaxImageBytes = int64_t{256} << 20;

// Whether the name ends with .png, .jpg or .jpeg, in upper or lower case.
bool is_image_name(std::string_view name);

// Reads the header. Throws Error when the file is empty, is neither PNG nor JPEG, or declares a size that is not allowed
// or not possible. Throws IoError when it cannot be read.
ImageHeader read_image_header(const std::string& path, FileSystem& files = FileSystem::real());

// The same, from the bytes of the file; `where` names them in messages.
ImageHeader parse_image_header(std::span<const uint8_t> file, const std::string& where);

// Decodes an image with 1 or 3 channels; 0: as many as the file has. A gray image with 3 channels has equal ones. 16-bit
// values are rounded to 8 bits, palettes become RGB, and alpha is dropped. Color profiles and orientation are ignored.
// Throws Error when the file is truncated, corrupt, or of a kind that is not supported.
DecodedImage decode_image(std::span<const uint8_t> file, const std::string& where, int64_t channels = 0);

// Throws Error, starting with `where`, unless an image of this size may be decoded from a file of `bytes` bytes.
void check_image_size(const std::string& where, int64_t rows, int64_t cols, int64_t bytes);

// The decoders behind decode_image(). They return 1 or 3 channels as the file has them, or 3 if `color`. Throw Error in
// builds without the library.
DecodedImage decode_png(std::span<const uint8_t> file, const std::string& where, bool color);
DecodedImage decode_jpeg(std::span<const uint8_t> file, const std::string& where, bool color);

// Whether this build has libpng.
bool can_decode_png();

}  // namespace lockstep::detail
