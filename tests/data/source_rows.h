// The examples of a source as arrays, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "lockstep/source.h"

namespace lockstep {

// The bytes of a field of one example.
inline std::vector<std::byte> row_bytes(const Source& source, size_t field, int64_t row) {
  const std::vector<Field> fields = source.fields();
  const auto bytes = static_cast<size_t>(fields[field].example.bytes());
  if (!source.resident().empty()) {
    const Array array = source.resident().at(fields[field].name);
    std::vector<std::byte> out(bytes);
    const auto copy = [&]<class T>(T) {
      std::memcpy(out.data(), array.data<T>().data() + static_cast<size_t>(row) * bytes / sizeof(T), bytes);
    };
    switch (array.dtype()) {
      case DType::u8:
        copy(uint8_t{});
        break;
      case DType::i32:
        copy(int32_t{});
        break;
      case DType::f32:
        copy(float{});
        break;
      default:
        ADD_FAILURE() << "row_bytes: " << name(array.dtype());
    }
    return out;
  }
  std::vector<std::vector<std::byte>> buffers;
  std::vector<std::byte*> pointers;
  for (const Field& each : fields) {
    buffers.emplace_back(static_cast<size_t>(each.example.bytes()));
    pointers.push_back(buffers.back().data());
  }
  const int64_t rows[] = {row};
  source.read(rows, pointers);
  return buffers[field];
}

// All examples in the order of epoch 0, for fields of u8, i32 and f32.
inline BatchArrays all_rows(const Source& source) {
  BatchArrays out;
  const std::vector<Field> fields = source.fields();
  for (size_t field = 0; field < fields.size(); ++field) {
    std::vector<std::byte> bytes;
    for (int64_t i = 0; i < source.count(); ++i) {
      const std::vector<std::byte> row = row_bytes(source, field, source.row(0, i));
      bytes.insert(bytes.end(), row.begin(), row.end());
    }
    Type type = fields[field].example;
    type.shape.insert(type.shape.begin(), source.count());
    out[fields[field].name] = detail::from_bytes(bytes.data(), type);
  }
  return out;
}

inline void expect_same_rows(const Source& a, const Source& b) {
  ASSERT_EQ(a.count(), b.count());
  ASSERT_EQ(a.fields().size(), b.fields().size());
  for (size_t field = 0; field < a.fields().size(); ++field) {
    EXPECT_EQ(a.fields()[field].name, b.fields()[field].name);
    EXPECT_EQ(a.fields()[field].example, b.fields()[field].example);
    for (int64_t i = 0; i < a.count(); ++i)
      ASSERT_EQ(row_bytes(a, field, a.row(0, i)), row_bytes(b, field, b.row(0, i))) << "example " << i;
  }
}

}  // namespace lockstep
