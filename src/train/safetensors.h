// The safetensors format: 8 bytes with the length of the header (little-endian), the header (JSON, padded with spaces
// so that what follows begins at a multiple of 8), and the tensors' bytes one after another without holes. Functions of
// their arguments, safe from any thread.
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
  std::vector<SafetensorsEntry> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  int64_t data_begin = 0;  // where the tensors' bytes begin in the file
};

// "F32", "BF16", "BOOL", …
std::string_view safetensors_name(DType);

// Which of several tensors come first in a file: those with larger elements, so that all of them lie at multiples of
// their own size; else as given. Returns their indices.
std::vector<size_t> safetensors_order(std::span<const Type> types);

// All that stands before the tensors' bytes. Throws Error when a name or the metadata is not UTF-8, is "__metadata__",
// or stands twice. REQUIRES: the tensors' offsets leave no holes.
std::string encode_safetensors(const std::vector<SafetensorsEntry>& tensors,
                               const std::map<std::string, std::string>& metadata);

// The header of a file that any program may have written. Everything is checked: that it is well-formed JSON without
// names that stand twice, element types, shapes, and that the tensors' bytes fill the rest of the file without holes or
// overlap. Throws Error naming the file, IoError when it cannot be read.
SafetensorsHeader read_safetensors_header(FileSystem& files, const std::string& path);

}  // namespace lockstep::detail
