// Kernel texts: the headers they include, common expressions, and their compilation. Safe from any thread.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "lane/cuda/code.h"
#include "ops/affine.h"
#include "program/op.h"

namespace lockstep {

// The headers that kernels may include: the files in ops/cuda/kernels.
const std::vector<CudaHeader>& kernel_headers();

// The name of a kernel in its text, which profilers show: "lockstep_top_k" for the row "top_k". Characters that a name
// in C cannot have become underscores.
std::string kernel_name(std::string_view row);

// Compiles a text, unless it is cached, and returns its only kernel.
CudaFunction kernel_of(const std::string& text, CudaStream& lane);
// Starts compiling a text on another thread, for a later kernel_of().
void begin_kernel(const std::string& text, CudaStream& lane);

// The type of an element in memory, and in registers.
inline const char* memory_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
    case DType::f8_e4m3:
      return "e4m3";
    case DType::f8_e5m2:
      return "e5m2";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::c64:
      return "math::Complex<float>";
    case DType::c128:
      return "math::Complex<double>";
    case DType::i8:
      return "int8_t";
    case DType::i16:
      return "int16_t";
    case DType::i32:
      return "int32_t";
    case DType::i64:
      return "int64_t";
    case DType::u8:
      return "uint8_t";
    case DType::u16:
      return "uint16_t";
    case DType::u64:
      return "uint64_t";
    case DType::u32:
      return "uint32_t";
    case DType::boolean:
      return "bool";
  }
  return "?";
}
inline bool is_16_bit(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }
inline const char* register_name(DType dtype) {
  return is_16_bit(dtype) || is_float8(dtype) ? "float" : memory_type(dtype);
}

// The type of an index into `n` elements.
inline const char* index_type(int64_t n) { return n < INT32_MAX ? "uint32_t" : "uint64_t"; }

// The position that a view reads for element `i` of its space, as an expression of the variable named `i`.
inline std::string position_text(const View& view, const Shape& shape, const std::string& i) {
  const std::vector<AffineDim> dims = collapse(view, shape);
  std::string out;
  int64_t inner = 1, farthest = 0;
  bool wide = false;  // positions do not fit 32 bits, whatever the number of elements
  for (const AffineDim& dim : dims) {
    wide |= dim.stride < 0;
    farthest += dim.stride * (dim.extent - 1);
  }
  wide |= farthest > INT32_MAX;
  for (size_t d = dims.size(); d-- > 0;) {
    std::string at = inner == 1 ? i : fmt::format("{} / {}u", i, inner);
    if (d > 0) at = fmt::format("({}) % {}u", at, dims[d].extent);
    if (dims[d].stride != 0) {
      const std::string step = dims[d].stride == 1 ? at
                               : wide              ? fmt::format("int64_t({}) * ({}ll)", at, dims[d].stride)
                                                   : fmt::format("({}) * {}u", at, dims[d].stride);
      out += (out.empty() ? "" : " + ") + ("(" + step + ")");
    }
    inner *= dims[d].extent;
  }
  if (view.offset != 0) out += (out.empty() ? "" : " + ") + fmt::format("{}ll", view.offset);
  return out.empty() ? "0" : out;
}

}  // namespace lockstep
