// The IDX format of MNIST: two zero bytes, a type byte, the number of dimensions, each dimension as a big-endian 32-bit
// number, then the elements. Only unsigned bytes (type 8) are read. Input is not trusted: nothing is allocated before
// the promised size has been compared with what the file can hold. Functions without state, safe from any thread.
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

// Reads a file, raw or gzip (told apart by its first bytes). Throws Error naming the file and the values when it is not
// IDX of bytes, is cut off, or goes on after its end, or when its shape is not the expected one; IoError when it cannot
// be read.
IdxData read_idx(const std::string& path, FileSystem& files = FileSystem::real(), const Shape* expected = nullptr);

// What comes before the elements of a raw file.
struct IdxHeader {
  Shape shape;
  int64_t size = 0;  // bytes, after which the elements begin
};

// Reads and checks the header of a raw file, and that as many elements follow as it promises, without reading them.
// Throws as read_idx does, and Error for a gzip file.
IdxHeader read_idx_header(const std::string& path, FileSystem& files = FileSystem::real());

// As read_idx, from memory; `where` names the bytes in messages.
IdxData parse_idx(std::span<const uint8_t> file, const std::string& where, const Shape* expected = nullptr);

// The bytes before the elements. REQUIRES: at most 255 dimensions, each below 2^32.
std::vector<uint8_t> idx_header(const Shape& shape);

// The whole raw file.
std::vector<uint8_t> encode_idx(const IdxData& data);

// MD5 of the whole raw file.
std::string idx_md5(const IdxData& data);

}  // namespace lockstep
