// Writes .npy files, for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace lockstep {

inline std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// A file with this dictionary as its header, in version 1, 2 or 3 of the format.
inline std::string npy_text(const std::string& dictionary, const std::string& elements, int version = 1) {
  const size_t length_bytes = version == 1 ? 2 : 4;
  std::string header = dictionary;
  while ((8 + length_bytes + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  for (size_t i = 0; i < length_bytes; ++i) out += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return out + header + elements;
}

inline std::string npy_dictionary(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
}

inline void write_npy(const std::string& path, const std::string& descr, const std::string& shape,
                      const std::string& elements, int version = 1) {
  FileSystem::real().write(path, bytes_of(npy_text(npy_dictionary(descr, shape), elements, version)));
}

// The bytes of numbers, as in the file.
template <class T>
std::string elements_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace lockstep
