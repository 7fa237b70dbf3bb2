#include "data/idx.h"

#include <algorithm>
#include <array>
#include <new>

#include "base/check.h"
#include "base/digest.h"
#include "data/bytes.h"

namespace lockstep {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;

std::string_view type_name(uint8_t type) {
  switch (type) {
    case 0x09:
      return "signed bytes";
    case 0x0b:
      return "16-bit integers";
    case 0x0c:
      return "32-bit integers";
    case 0x0d:
      return "32-bit floats";
    case 0x0e:
      return "64-bit floats";
    default:
      return {};
  }
}

// Reads up to `size` bytes; returns the number read. A small gzip file can validly declare gigabytes, so the buffer
// grows with the data that has actually arrived: at most twice that, or kFirst bytes.
uint64_t read_growing(detail::ByteStream& stream, uint64_t size, std::vector<uint8_t>& bytes,
                      const std::string& where) {
  constexpr uint64_t kFirst = 64 << 20;
  uint64_t done = 0;
  try {
    while (done < size) {
      bytes.resize(std::min(size, std::max(kFirst, 2 * done)));
      const auto rest = std::span(bytes).subspan(done);
      const size_t n = stream.read(rest);
      done += n;
      if (n < rest.size()) break;
    }
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(
        fmt::format("read {}: out of memory for the {} bytes that its header declares; use a machine with more memory",
                    where, size));
  }
  return done;
}

// The contents that a header declares.
struct DeclaredContents {
  Shape shape;
  uint64_t size = 1;  // elements, each of one byte
};

// Reads the header. Throws Error if it is invalid or declares more bytes than the stream can have.
DeclaredContents read_declared(detail::ByteStream& stream, const std::string& where, const Shape* expected) {
  std::array<uint8_t, 4> magic = {};
  if (stream.read(magic) < magic.size())
    throw_error("read {}: the file ends within the 4-byte magic number; it is not an IDX file", where);
  const uint8_t type = magic[2], rank = magic[3];
  if (magic[0] != 0 || magic[1] != 0 || (type != kUnsignedByte && type_name(type).empty()))
    throw_error(
        "read {}: it starts with {:02x} {:02x} {:02x} {:02x}, but an IDX file of bytes starts with 00 00 08; it is not "
        "an IDX file",
        where, magic[0], magic[1], magic[2], magic[3]);
  if (type != kUnsignedByte)
    throw_error(
        "read {}: it contains {} (IDX type 0x{:02x}), but only unsigned bytes (type 0x08) are supported; convert the "
        "file",
        where, type_name(type), type);
  if (rank == 0) throw_error("read {}: it has no dimensions; an IDX file of images or labels has at least one", where);

  std::vector<uint8_t> extents(size_t{4} * rank);
  if (stream.read(extents) < extents.size())
    throw_error("read {}: the file ends within its header of {} dimensions; fetch the file again", where, rank);
  DeclaredContents declared;
  bool too_large = false;
  for (size_t i = 0; i < extents.size(); i += 4) {
    const uint64_t extent = uint64_t{extents[i]} << 24 | extents[i + 1] << 16 | extents[i + 2] << 8 | extents[i + 3];
    declared.shape.push_back(static_cast<int64_t>(extent));
    too_large |= __builtin_mul_overflow(declared.size, extent, &declared.size);
  }
  if (expected && declared.shape != *expected)
    throw_error("read {}: its header declares {}, but this file of the data set has {}; it is another file", where,
                to_string(declared.shape), to_string(*expected));
  if (too_large)
    throw_error("read {}: its header declares {}, more than any file can have; the header is corrupt", where,
                to_string(declared.shape));
  if (declared.size > stream.max_remaining())
    throw_error(
        "read {}: its header declares {} = {} bytes, but at most {} follow; the file is truncated or its header "
        "corrupt: fetch it again",
        where, to_string(declared.shape), declared.size, stream.max_remaining());
  return declared;
}

[[noreturn]] void throw_too_long(const std::string& where, const Shape& shape, uint64_t size) {
  throw_error(
      "read {}: there are bytes after the {} = {} that its header declares; the header or the file is wrong: fetch it "
      "again",
      where, to_string(shape), size);
}

IdxData read_stream(detail::ByteStream& stream, const std::string& where, const Shape* expected) {
  const auto [shape, size] = read_declared(stream, where, expected);
  IdxData data{.shape = shape, .bytes = {}};
  const uint64_t actual = read_growing(stream, size, data.bytes, where);
  if (actual < size)
    throw_error("read {}: its header declares {} = {} bytes, but {} follow; the file is truncated: fetch it again",
                where, to_string(data.shape), size, actual);
  std::array<uint8_t, 1> extra;
  if (stream.read(extra) != 0) throw_too_long(where, data.shape, size);
  return data;
}

}  // namespace

IdxData read_idx(const std::string& path, FileSystem& files, const Shape* expected) {
  std::array<uint8_t, 2> start = {};
  files.read(path, 0, start);
  if (!detail::is_gzip(start)) {
    detail::FileStream stream(files, path);
    return read_stream(stream, path, expected);
  }
  constexpr int64_t kMaxCompressed = int64_t{16} << 30;  // read into memory; the header bounds the inflated size
  return parse_idx(files.read_file(path, kMaxCompressed), path, expected);
}

IdxHeader read_idx_header(const std::string& path, FileSystem& files) {
  std::array<uint8_t, 2> start = {};
  files.read(path, 0, start);
  if (detail::is_gzip(start))
    throw_error("read {}: it is compressed, so it cannot be streamed; run `gunzip -k {}` and use the raw file", path,
                path);
  detail::FileStream stream(files, path);
  const DeclaredContents declared = read_declared(stream, path, nullptr);
  if (declared.size < stream.max_remaining()) throw_too_long(path, declared.shape, declared.size);
  return {.shape = declared.shape, .size = files.size(path) - static_cast<int64_t>(declared.size)};
}

IdxData parse_idx(std::span<const uint8_t> file, const std::string& where, const Shape* expected) {
  if (detail::is_gzip(file)) {
    detail::GzipStream stream(file, where);
    return read_stream(stream, where, expected);
  }
  detail::MemoryStream stream(file);
  return read_stream(stream, where, expected);
}

std::vector<uint8_t> idx_header(const Shape& shape) {
  LOCKSTEP_CHECK(shape.size() <= 255);
  std::vector<uint8_t> header = {0, 0, kUnsignedByte, static_cast<uint8_t>(shape.size())};
  for (int64_t extent : shape) {
    LOCKSTEP_CHECK(extent >= 0 && extent <= 0xffffffff);
    for (int shift = 24; shift >= 0; shift -= 8) header.push_back(static_cast<uint8_t>(extent >> shift));
  }
  return header;
}

std::vector<uint8_t> encode_idx(const IdxData& data) {
  std::vector<uint8_t> file = idx_header(data.shape);
  file.insert(file.end(), data.bytes.begin(), data.bytes.end());
  return file;
}

std::string idx_md5(const IdxData& data) {
  Md5 md5;
  md5.update(idx_header(data.shape));
  md5.update(data.bytes);
  return md5.hex();
}

}  // namespace lockstep
