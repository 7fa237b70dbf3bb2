#include "data/row_file.h"

#include <fmt/format.h>

namespace lockstep::detail {

RowFile::RowFile(const std::string& path, int64_t begin, int64_t row_bytes, FileSystem& files)
    : path_(path), file_(files.open(path)), begin_(begin), row_bytes_(row_bytes) {}

void RowFile::read_range(int64_t first, int64_t count, std::byte* out) const {
  const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(out), static_cast<size_t>(count * row_bytes_));
  if (file_->read(begin_ + first * row_bytes_, bytes) < bytes.size())
    throw IoError(
        fmt::format("read {}: it ends before example {} although it was complete when opened; do not change the file "
                    "while it is in use",
                    path_, first + count - 1));
}

void RowFile::read(std::span<const int64_t> rows, std::byte* out) const {
  for (size_t first = 0, end = 0; first < rows.size(); first = end) {
    for (end = first + 1; end < rows.size() && rows[end] == rows[end - 1] + 1;) ++end;
    read_range(rows[first], static_cast<int64_t>(end - first), out + static_cast<int64_t>(first) * row_bytes_);
  }
}

}  // namespace lockstep::detail
