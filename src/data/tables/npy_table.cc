#include <algorithm>
#include <cmath>
#include <new>

#include "base/check.h"
#include "data/tables/npy.h"
#include "data/tables/npy_integers.h"
#include "data/tables/table.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kNpyPart = 1 << 20;  // elements converted at a time

// Appends all elements of a file as f32. Throws Error for infinities and NaN.
template <class T>
void append_numbers(const NpyFile& file, std::vector<float>& out) {
  const int64_t row = count(file.example().shape), step = std::max<int64_t>(1, kNpyPart / row);
  std::vector<T> part(static_cast<size_t>(step * row));
  for (int64_t first = 0; first < file.count(); first += step) {
    const int64_t rows = std::min(step, file.count() - first);
    file.read_range(first, rows, reinterpret_cast<std::byte*>(part.data()));
    for (int64_t i = 0; i < rows * row; ++i) {
      const float value = static_cast<float>(part[static_cast<size_t>(i)]);
      if (!std::isfinite(value))
        throw_error("read {}: element {} of example {} is {}; a table has finite numbers: fix or remove the example",
                    file.path(), i % row, first + i / row, value);
      out.push_back(value);
    }
  }
}

std::vector<float> read_numbers(const NpyFile& file) {
  std::vector<float> out;
  try {
    out.reserve(static_cast<size_t>(count(file.header().shape)));
    switch (file.example().dtype) {
      case DType::boolean:
      case DType::u8:
        append_numbers<uint8_t>(file, out);
        break;
      case DType::i8:
        append_numbers<int8_t>(file, out);
        break;
      case DType::i16:
        append_numbers<int16_t>(file, out);
        break;
      case DType::u16:
        append_numbers<uint16_t>(file, out);
        break;
      case DType::u64:
        append_numbers<uint64_t>(file, out);
        break;
      case DType::c64:
      case DType::c128:
        throw_error("read {}: its elements are complex; a table has real numbers: save x.real and x.imag", file.path());
      case DType::i32:
        append_numbers<int32_t>(file, out);
        break;
      case DType::u32:
        append_numbers<uint32_t>(file, out);
        break;
      case DType::i64:
        append_numbers<int64_t>(file, out);
        break;
      case DType::f16:
        append_numbers<Float16>(file, out);
        break;
      case DType::f32:
        append_numbers<float>(file, out);
        break;
      default:
        append_numbers<double>(file, out);
    }
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(fmt::format("read {}: out of memory for its {} elements; use a machine with more memory",
                                  file.path(), count(file.header().shape)));
  }
  return out;
}

bool is_npy_category(const NpyFile& y, const TableFormat& format) {
  if (format.like) return format.like->classes > 0;
  if (format.kind == "category") return true;
  if (format.kind == "number") return false;
  if (format.kind != "auto")
    throw_error("data: the kind of a target is \"{}\"; choose auto, number or category", format.kind);
  return !is_floating(y.example().dtype);
}

void check_like(const Table& table, const Table& like) {
  if (table.columns() != like.columns())
    throw_error("read {}: it has {} features, but {} has {}; use files of one data set", table.name, table.columns(),
                like.name, like.columns());
  if (table.classes > like.classes)
    throw_error("read {}: it has class {}, but {} has classes up to {}; use files of one data set", table.name,
                table.classes - 1, like.name, like.classes - 1);
}

}  // namespace

Table read_npy_table(const std::string& x_path, const std::string& y_path, const TableFormat& format) {
  const NpyFile x(x_path), y(y_path);
  const Shape &xs = x.header().shape, &ys = y.header().shape;
  if (xs.size() != 2)
    throw_error("read {}: it has shape {}; features have two dimensions (examples, features)", x_path, to_string(xs));
  if (ys.size() != 1)
    throw_error("read {}: it has shape {}; targets have one dimension (examples)", y_path, to_string(ys));
  if (xs[0] != ys[0])
    throw_error("read {}: it has {} examples, but {} has {} targets; each example needs one", x_path, xs[0], y_path,
                ys[0]);
  Table table;
  table.name = x_path;
  table.target_name = "y";
  for (int64_t i = 0; i < xs[1]; ++i) table.feature_names.push_back(std::to_string(i + 1));
  table.features = read_numbers(x);
  if (is_npy_category(y, format)) {
    table.labels = read_npy_labels(y);
    table.classes = int64_t{*std::max_element(table.labels.begin(), table.labels.end())} + 1;
  } else {
    table.targets = read_numbers(y);
  }
  if (format.like) {
    check_like(table, *format.like);
    table.classes = format.like->classes;
  }
  return table;
}

}  // namespace lockstep::detail
