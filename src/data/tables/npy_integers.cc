#include "data/tables/npy_integers.h"

#include <cstring>
#include <limits>

#include "base/check.h"

namespace lockstep::detail {
namespace {

template <class T>
std::vector<int32_t> checked_labels(const NpyFile& file) {
  std::vector<T> values(static_cast<size_t>(file.count()));
  file.read_range(0, file.count(), reinterpret_cast<std::byte*>(values.data()));
  std::vector<int32_t> out;
  out.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<int64_t>(values[i]);  // from 2^63 on, negative
    if (value < 0 || value >= std::numeric_limits<int32_t>::max())
      throw_error("read {}: label {} at position {}; labels are numbers from 0 to the number of classes - 1",
                  file.path(), value, i);
    out.push_back(static_cast<int32_t>(value));
  }
  return out;
}

}  // namespace

std::vector<int32_t> read_npy_labels(const NpyFile& file) {
  const NpyHeader& header = file.header();
  if (header.shape.size() != 1)
    throw_error("read {}: it has shape {}; labels have one dimension", file.path(), to_string(header.shape));
  switch (file.example().dtype) {
    case DType::boolean:
    case DType::u8:
      return checked_labels<uint8_t>(file);
    case DType::i8:
      return checked_labels<int8_t>(file);
    case DType::i16:
      return checked_labels<int16_t>(file);
    case DType::u16:
      return checked_labels<uint16_t>(file);
    case DType::u64:
      return checked_labels<uint64_t>(file);
    case DType::i32:
      return checked_labels<int32_t>(file);
    case DType::u32:
      return checked_labels<uint32_t>(file);
    case DType::i64:
      return checked_labels<int64_t>(file);
    default:
      throw_error("read {}: its elements are {}; labels are integers: save y.astype('int32')", file.path(),
                  npy_name(header.element));
  }
}

}  // namespace lockstep::detail
