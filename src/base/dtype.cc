#include "lockstep/dtype.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

struct Row {
  std::string_view name;
  int64_t size;
};
constexpr std::array<Row, kDTypeCount> kRows = {{
    {"bool", 1},
    {"u8", 1},
    {"u16", 2},
    {"u32", 4},
    {"u64", 8},
    {"i8", 1},
    {"i16", 2},
    {"i32", 4},
    {"i64", 8},
    {"f8_e4m3", 1},
    {"f8_e5m2", 1},
    {"bf16", 2},
    {"f16", 2},
    {"f32", 4},
    {"f64", 8},
    {"c64", 8},
    {"c128", 16},
}};

}  // namespace

std::string_view name(DType t) { return kRows[static_cast<size_t>(t)].name; }
int64_t size_of(DType t) { return kRows[static_cast<size_t>(t)].size; }

std::optional<DType> dtype_from_name(std::string_view wanted) {
  for (size_t i = 0; i < kRows.size(); ++i)
    if (kRows[i].name == wanted) return static_cast<DType>(i);
  return std::nullopt;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (a > b) return promote(b, a);
  if (a == DType::boolean) return b;
  if (is_complex(b)) return complex_of(a) == DType::c128 ? DType::c128 : b;
  if (is_float8(a) && is_float8(b)) return DType::bf16;
  if (is_floating(b)) return a == DType::bf16 && b == DType::f16 ? DType::f32 : b;
  if (is_unsigned(a) == is_unsigned(b)) return b;  // the wider one
  // The signed type that holds a, or b if that is wider.
  switch (a) {
    case DType::u8:
      return std::max(b, DType::i16);
    case DType::u16:
      return std::max(b, DType::i32);
    case DType::u32:
      return DType::i64;
    default:
      return DType::f32;
  }
}

}  // namespace lockstep
