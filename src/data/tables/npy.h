// The .npy format of NumPy, versions 1.0, 2.0 and 3.0: a magic number, the length of the header, a Python dictionary with
// the element type and the shape, then the elements. Files are not trusted: the header is compared with the size of the
// file before memory is allocated. Safe from any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/file.h"
#include "data/row_file.h"
#include "lockstep/shape.h"

namespace lockstep::detail {

// The element types of files.
enum class NpyElement { b1, u1, i1, u2, i2, u4, i4, u8, i8, f2, f4, f8, c8, c16 };

struct NpyHeader {
  NpyElement element = NpyElement::f4;
  Shape shape;
  int64_t begin = 0;  // position of the first element in the file
};

int64_t npy_size_of(NpyElement element);
// "uint8", "float32": NumPy's name.
std::string npy_name(NpyElement element);
// The type of an array with these elements: u2 is u16, i8 i64, f4 f32, c8 c64.
DType npy_dtype(NpyElement element);

// Reads and checks the header, and that the file has the declared size. Throws Error when the file is not a .npy file, is
// truncated, has trailing bytes, is in Fortran order, or has big-endian, structured or other elements that are not
// supported. Throws IoError when it cannot be read.
NpyHeader read_npy_header(const std::string& path, FileSystem& files = FileSystem::real());

// A file with one row for each example. Immutable, safe from any thread.
class NpyFile {
 public:
  // Throws as read_npy_header() does, and Error for a scalar and for a file without examples.
  explicit NpyFile(const std::string& path, FileSystem& files = FileSystem::real());

  const std::string& path() const { return path_; }
  const NpyHeader& header() const { return header_; }
  int64_t count() const { return header_.shape[0]; }
  // The type of one example in arrays.
  Type example() const;

  // Reads rows, converted to the type of example(). Throws IoError. REQUIRES: `out` has room for them.
  void read(std::span<const int64_t> rows, std::byte* out) const;
  void read_range(int64_t first, int64_t count, std::byte* out) const;

 private:
  // Makes `count` elements that begin at `data` valid elements of arrays, in place: bools are 0 or 1.
  void normalize(std::byte* data, int64_t count) const;

  std::string path_;
  NpyHeader header_;
  int64_t elements_ = 1;  // of an example
  RowFile rows_;
};

}  // namespace lockstep::detail
