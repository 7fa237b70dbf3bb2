// The IDX format of MNIST: two zero bytes, a type byte, the number of dimensions, each dimension as a big-endian 32-bit
// number, then the elements. Only unsigned bytes (type 8) are supported. Input is not trusted: memory is allocated only
// after the declared size was compared with the size of the file. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "lockstep/shape.h"

namespace lockstep {

struct IdxData {
  Shape shape;
  std::vector<uint8_t> bytes;
};

// Reads a file, raw or gzip (detected by its first bytes). Throws Error naming the file and the values when it is not
// an IDX file of bytes, is truncated, has trailing bytes, or has another shape than expected. Throws IoError when it
// cannot be read.
IdxData read_idx(const std::string& path, FileSystem& files = FileSystem::real(), const Shape* expected = nullptr);

// The header of a raw file.
struct IdxHeader {
  Shape shape;
  int64_t size = 0;  // bytes before the first element
};

// Reads and checks the header of a raw file, and that the file has the declared size, without reading the elements.
// Throws as read_idx does, and Error for a gzip file.
IdxHeader read_idx_header(const std::string& path, FileSystem& files = FileSystem::real());

// As read_idx, from memory; `where` names the bytes in messages.
IdxData parse_idx(std::span<const uint8_t> file, const std::string& where, const Shape* expected = nullptr);

// The encoded header. REQUIRES: at most 255 dimensions, each below 2^32.
std::vector<uint8_t> idx_header(const Shape& shape);

// The complete raw file.
std::vector<uint8_t> encode_idx(const IdxData& data);

// MD5 checksum of the complete raw file.
std::string idx_md5(const IdxData& data);

}  // namespace lockstep
