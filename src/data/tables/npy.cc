#include "data/tables/npy.h"

#include "base/check.h"

namespace lockstep::detail {
namespace {

// Reads the header of a file with at least one example.
NpyHeader checked_header(const std::string& path, FileSystem& files) {
  NpyHeader header = read_npy_header(path, files);
  if (header.shape.empty()) throw_error("read {}: it is a scalar; save an array with one row for each example", path);
  if (count(header.shape) == 0)
    throw_error("read {}: it has no elements: its shape is {}; save an array with examples", path,
                to_string(header.shape));
  return header;
}

// NumPy's bool is one byte; any value but 0 is true.
void normalize_bools(std::byte* data, int64_t count) {
  for (int64_t i = 0; i < count; ++i) data[i] = std::byte{data[i] != std::byte{0}};
}

}  // namespace

NpyFile::NpyFile(const std::string& path, FileSystem& files)
    : path_(path),
      header_(checked_header(path, files)),
      elements_(lockstep::count(header_.shape) / header_.shape[0]),
      rows_(path, header_.begin, elements_ * npy_size_of(header_.element), files) {}

Type NpyFile::example() const {
  return {npy_dtype(header_.element), Shape(header_.shape.begin() + 1, header_.shape.end())};
}

void NpyFile::read(std::span<const int64_t> rows, std::byte* out) const {
  rows_.read(rows, out);
  normalize(out, std::ssize(rows) * elements_);
}

void NpyFile::read_range(int64_t first, int64_t count, std::byte* out) const {
  rows_.read_range(first, count, out);
  normalize(out, count * elements_);
}

void NpyFile::normalize(std::byte* data, int64_t count) const {
  if (header_.element == NpyElement::b1) normalize_bools(data, count);
}

}  // namespace lockstep::detail
