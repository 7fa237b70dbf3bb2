#include "data/images/image_codec.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>

#include "base/check.h"

namespace lockstep::detail {
namespace {

constexpr std::array<uint8_t, 8> kPngSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

// Fills the span from an offset of the file; returns the number of bytes read.
using ReadAt = std::function<size_t(int64_t offset, std::span<uint8_t> out)>;

int64_t big_endian(std::span<const uint8_t> bytes) {
  int64_t value = 0;
  for (const uint8_t byte : bytes) value = value << 8 | byte;
  return value;
}

void read_exactly(const ReadAt& read, int64_t offset, std::span<uint8_t> out, const std::string& where) {
  if (read(offset, out) < out.size())
    throw_error("read {}: the file ends within the header of the image; it is truncated: replace it", where);
}

ImageHeader png_header(const ReadAt& read, const std::string& where) {
  std::array<uint8_t, 26> bytes = {};  // signature, length, "IHDR", width, height, bit depth, color type
  read_exactly(read, 0, bytes, where);
  const std::span<const uint8_t> all(bytes);
  if (!std::ranges::equal(all.subspan(12, 4), std::string_view("IHDR")))
    throw_error("read {}: a PNG file without an image header; it is corrupt: replace it", where);
  constexpr int kGray = 0, kGrayAlpha = 4;
  const int type = bytes[25];
  return {.format = ImageFormat::png,
          .rows = big_endian(all.subspan(20, 4)),
          .cols = big_endian(all.subspan(16, 4)),
          .channels = type == kGray || type == kGrayAlpha ? 1 : 3};
}

// Whether a marker of a JPEG file starts a frame header (SOF). 0xc4, 0xc8 and 0xcc have other meanings.
bool is_frame(uint8_t marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

// Walks over the segments of the file: 0xff, a marker, and a length that includes its own two bytes.
ImageHeader jpeg_header(const ReadAt& read, const std::string& where) {
  constexpr int kMaxSegments = 10000;
  int64_t at = 2;
  for (int segment = 0; segment < kMaxSegments; ++segment) {
    std::array<uint8_t, 10> bytes = {};  // 0xff, marker, length (2), precision, rows (2), columns (2), components
    read_exactly(read, at, std::span(bytes).first(4), where);
    if (bytes[0] != 0xff)
      throw_error("read {}: byte {} of the JPEG file is 0x{:02x} instead of a marker; it is corrupt: replace it", where,
                  at, bytes[0]);
    if (bytes[1] == 0xff) {  // a fill byte
      ++at;
      continue;
    }
    if (is_frame(bytes[1])) {
      read_exactly(read, at, bytes, where);
      const std::span<const uint8_t> all(bytes);
      const int64_t components = bytes[9];
      if (components != 1 && components != 3)
        throw_error("read {}: a JPEG file with {} color components{}; convert it to RGB or gray", where, components,
                    components == 4 ? " (CMYK)" : "");
      return {.format = ImageFormat::jpeg,
              .rows = big_endian(all.subspan(5, 2)),
              .cols = big_endian(all.subspan(7, 2)),
              .channels = components};
    }
    const int64_t length = big_endian(std::span(bytes).subspan(2, 2));
    if (length < 2 || bytes[1] == 0xd9 || bytes[1] == 0xda)
      throw_error("read {}: a JPEG file without a frame header before byte {}; it is corrupt: replace it", where, at);
    at += 2 + length;
  }
  throw_error("read {}: a JPEG file without a frame header in {} segments; it is corrupt: replace it", where,
              kMaxSegments);
}

ImageHeader read_header(const ReadAt& read, const std::string& where, int64_t size) {
  std::array<uint8_t, 8> start = {};
  const size_t got = read(0, start);
  if (got == 0) throw_error("read {}: the file is empty; replace or remove it", where);
  ImageHeader header;
  if (got == start.size() && start == kPngSignature) {
    header = png_header(read, where);
  } else if (got >= 3 && start[0] == 0xff && start[1] == 0xd8 && start[2] == 0xff) {
    header = jpeg_header(read, where);
  } else {
    throw_error("read {}: it is neither a PNG nor a JPEG file; convert or remove it", where);
  }
  check_image_size(where, header.rows, header.cols, size);
  return header;
}

}  // namespace

bool is_image_name(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower.ends_with(".png") || lower.ends_with(".jpg") || lower.ends_with(".jpeg");
}

void check_image_size(const std::string& where, int64_t rows, int64_t cols, int64_t bytes) {
  if (rows < 1 || cols < 1) throw_error("read {}: an image of {} x {} pixels; replace or remove it", where, rows, cols);
  if (rows > kMaxPixels / cols)
    throw_error("read {}: an image of {} x {} pixels; at most {} pixels are allowed: reduce it", where, rows, cols,
                kMaxPixels);
  constexpr int64_t kBestRatio = 16384;  // pixels in a byte: more than deflate or a JPEG scan can compress
  if (rows * cols / kBestRatio > bytes)
    throw_error(
        "read {}: it declares {} x {} pixels, which cannot be in its {} bytes; it is truncated or corrupt: "
        "replace it",
        where, rows, cols, bytes);
}

ImageHeader read_image_header(const std::string& path, FileSystem& files) {
  const int64_t size = files.size(path);
  const std::unique_ptr<OpenFile> file = files.open(path);
  return read_header([&](int64_t offset, std::span<uint8_t> out) { return file->read(offset, out); }, path, size);
}

ImageHeader parse_image_header(std::span<const uint8_t> file, const std::string& where) {
  const auto read = [&](int64_t offset, std::span<uint8_t> out) {
    const size_t begin = std::min(static_cast<size_t>(offset), file.size());
    const size_t count = std::min(out.size(), file.size() - begin);
    std::copy_n(file.begin() + static_cast<std::ptrdiff_t>(begin), count, out.begin());
    return count;
  };
  return read_header(read, where, std::ssize(file));
}

DecodedImage decode_image(std::span<const uint8_t> file, const std::string& where, int64_t channels) {
  const ImageHeader header = parse_image_header(file, where);
  if (channels == 1 && header.channels != 1)
    throw_error("read {}: it is a color image, but a gray one was expected; convert it", where);
  return header.format == ImageFormat::png ? decode_png(file, where, channels == 3)
                                           : decode_jpeg(file, where, channels == 3);
}

}  // namespace lockstep::detail
