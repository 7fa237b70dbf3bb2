// The safetensors format: 8 bytes with the length of the header (little-endian), the header (JSON, padded with spaces
// to a multiple of 8 bytes), and the bytes of the tensors without gaps. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "lockstep/shape.h"

namespace lockstep::detail {

struct SafetensorsEntry {
  std::string name;
  Type type;
  int64_t offset = 0;  // of its first byte after the header

  int64_t end() const { return offset + type.bytes(); }
  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // by offset
  std::map<std::string, std::string> metadata;
  int64_t data_begin = 0;  // position of the first tensor in the file
};

// "F32", "BF16", "BOOL", …
std::string_view safetensors_name(DType);

// The order of tensors in a file, as indices: by decreasing element size, so that all are aligned; otherwise as given.
std::vector<size_t> safetensors_order(std::span<const Type> types);

// The bytes before the tensors: length and header. Throws Error when a name or the metadata is not UTF-8, a name is
// "__metadata__", or a name is used twice. REQUIRES: the tensors' offsets leave no gaps.
std::string encode_safetensors(const std::vector<SafetensorsEntry>& tensors,
                               const std::map<std::string, std::string>& metadata);

// Reads the header of a file, which any program may have written. Checks that it is valid JSON without duplicate
// names, element types, shapes, and that the tensors fill the rest of the file without gaps or overlap. Throws Error
// naming the file, IoError when it cannot be read.
SafetensorsHeader read_safetensors_header(FileSystem& files, const std::string& path);

}  // namespace lockstep::detail
