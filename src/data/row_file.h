// RowFile: random access to rows of equal size in a file. Immutable, safe from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"

namespace lockstep::detail {

class RowFile {
 public:
  // Row i begins at byte begin + i * row_bytes. REQUIRES: row_bytes > 0, and the file system outlives this object.
  RowFile(const std::string& path, int64_t begin, int64_t row_bytes, FileSystem& files = FileSystem::real());

  const std::string& path() const { return path_; }
  int64_t row_bytes() const { return row_bytes_; }

  // Reads rows in the given order. Consecutive rows are read with one call. Throws IoError. REQUIRES: `out` has room for
  // rows.size() rows.
  void read(std::span<const int64_t> rows, std::byte* out) const;
  // Reads the rows [first, first + count).
  void read_range(int64_t first, int64_t count, std::byte* out) const;

 private:
  std::string path_;
  std::unique_ptr<OpenFile> file_;
  int64_t begin_, row_bytes_;
};

}  // namespace lockstep::detail
