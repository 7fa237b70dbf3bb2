// A PNG file is a signature and chunks: length, name, data, and the CRC-32 of name and data. The pixels are one zlib
// stream, in which each row begins with the number of its filter; 0 is none.
#include "data/images/png_write.h"

#include <zlib.h>

#include <string_view>

#include "base/check.h"

namespace lockstep::detail {
namespace {

void put_big_endian(std::vector<uint8_t>& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(value >> shift));
}

void put_chunk(std::vector<uint8_t>& out, std::string_view name, const std::vector<uint8_t>& data) {
  put_big_endian(out, static_cast<uint32_t>(data.size()));
  const size_t begin = out.size();
  out.insert(out.end(), name.begin(), name.end());
  out.insert(out.end(), data.begin(), data.end());
  put_big_endian(out, static_cast<uint32_t>(crc32(0, out.data() + begin, static_cast<uInt>(out.size() - begin))));
}

}  // namespace

std::vector<uint8_t> to_png(const DecodedImage& image) {
  const int64_t row_bytes = image.cols * image.channels;
  LOCKSTEP_CHECK(image.channels == 1 || image.channels == 3, "{} channels", image.channels);
  LOCKSTEP_CHECK(std::ssize(image.pixels) == image.rows * row_bytes, "{} bytes", image.pixels.size());
  std::vector<uint8_t> rows;
  rows.reserve(static_cast<size_t>(image.rows * (row_bytes + 1)));
  for (int64_t row = 0; row < image.rows; ++row) {
    rows.push_back(0);
    rows.insert(rows.end(), image.pixels.begin() + row * row_bytes, image.pixels.begin() + (row + 1) * row_bytes);
  }
  uLongf size = compressBound(rows.size());
  std::vector<uint8_t> packed(size);
  const int result = compress2(packed.data(), &size, rows.data(), rows.size(), Z_DEFAULT_COMPRESSION);
  if (result != Z_OK)
    throw OutOfMemory("write a PNG image: out of memory for its compression; use a machine with more");
  packed.resize(size);

  std::vector<uint8_t> out = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, header;
  put_big_endian(header, static_cast<uint32_t>(image.cols));
  put_big_endian(header, static_cast<uint32_t>(image.rows));
  const uint8_t color_type = image.channels == 3 ? 2 : 0;
  header.insert(header.end(), {8, color_type, 0, 0, 0});  // bits, color type, deflate, adaptive filters, no interlacing
  put_chunk(out, "IHDR", header);
  put_chunk(out, "IDAT", packed);
  put_chunk(out, "IEND", {});
  return out;
}

}  // namespace lockstep::detail
