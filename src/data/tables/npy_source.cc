#include <complex>
#include <limits>
#include <map>
#include <new>
#include <utility>

#include "base/check.h"
#include "data/images/labelled_images.h"
#include "data/tables/npy.h"
#include "lockstep/complex.h"
#include "lockstep/table_data.h"

namespace lockstep {
namespace {

using detail::NpyFile;

class NpySource final : public Source {
 public:
  explicit NpySource(std::map<std::string, NpyFile> files) : files_(std::move(files)) {}

  std::string name() const override { return files_.begin()->second.path(); }
  std::string origin(const std::string& field) const override { return files_.at(field).path(); }
  int64_t count() const override { return files_.begin()->second.count(); }
  std::vector<Field> fields() const override {
    std::vector<Field> out;
    for (const auto& [field, file] : files_) out.push_back({field, file.example()});
    return out;
  }
  void read(std::span<const int64_t> rows, std::span<std::byte* const> buffers) const override {
    size_t i = 0;
    for (const auto& [field, file] : files_) file.read(rows, buffers[i++]);
  }

 private:
  std::map<std::string, NpyFile> files_;
};

template <class T>
Array read_array_as(const NpyFile& file) {
  try {
    std::vector<T> values(static_cast<size_t>(count(file.header().shape)));
    file.read_range(0, file.count(), reinterpret_cast<std::byte*>(values.data()));
    return Array::from(std::move(values), file.header().shape);
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(
        fmt::format("read {}: out of memory for its {} elements; stream it from disk, or use a machine "
                    "with more memory",
                    file.path(), count(file.header().shape)));
  }
}

Array read_bools(const NpyFile& file) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count(file.header().shape)));
  file.read_range(0, file.count(), reinterpret_cast<std::byte*>(bytes.data()));
  return Array::from(std::vector<bool>(bytes.begin(), bytes.end()), file.header().shape);
}

Array read_array(const NpyFile& file) {
  switch (file.example().dtype) {
    case DType::boolean:
      return read_bools(file);
    case DType::u8:
      return read_array_as<uint8_t>(file);
    case DType::i8:
      return read_array_as<int8_t>(file);
    case DType::i16:
      return read_array_as<int16_t>(file);
    case DType::u16:
      return read_array_as<uint16_t>(file);
    case DType::u64:
      return read_array_as<uint64_t>(file);
    case DType::c64:
      return read_array_as<std::complex<float>>(file);
    case DType::c128:
      return read_array_as<std::complex<double>>(file);
    case DType::i32:
      return read_array_as<int32_t>(file);
    case DType::u32:
      return read_array_as<uint32_t>(file);
    case DType::i64:
      return read_array_as<int64_t>(file);
    case DType::f16:
      return read_array_as<Float16>(file);
    case DType::f32:
      return read_array_as<float>(file);
    default:
      return read_array_as<double>(file);
  }
}

}  // namespace

Array load_npy(const std::string& path) { return read_array(NpyFile(path)); }

SourcePtr npy_source(const std::map<std::string, std::string>& paths, const std::string& stream) {
  if (paths.empty()) throw_error("npy_source: no files; give at least one field with its file");
  std::map<std::string, NpyFile> files;
  int64_t bytes = 0;
  for (const auto& [field, path] : paths) {
    const NpyFile& file = files.emplace(field, NpyFile(path)).first->second;
    const NpyFile& first = files.at(paths.begin()->first);
    if (file.count() != first.count())
      throw_error("npy_source: {} has {} rows, but {} has {}; give one row per example in each", first.path(),
                  first.count(), path, file.count());
    const Type example = file.example();
    bytes += file.count() * example.bytes();
  }
  if (detail::should_stream(stream, bytes)) return std::make_shared<NpySource>(std::move(files));
  BatchArrays arrays;
  for (const auto& [field, file] : files) arrays[field] = read_array(file);
  return array_source(std::move(arrays), files.begin()->second.path());
}

}  // namespace lockstep
