// The operands and scratch slots of matrix product kernels. Plain values.
#pragma once

#include <cstdint>

namespace lockstep::detail {

// Scratch slots of the matrix product.
inline constexpr int kSumSlot = 4, kASlot = 5, kBSlot = 6, kOutSlot = 7;

// A matrix in memory: element (row, col) is at data[row * ld + col], or at data[col * ld + row] if transposed.
template <class T>
struct GemmOperand {
  const T* data = nullptr;
  int64_t ld = 0;
  bool transposed = false;

  GemmOperand at(int64_t row, int64_t col) const {
    return {data + (transposed ? col * ld + row : row * ld + col), ld, transposed};
  }
};

// The right operand of a product: in memory, or already packed for a kernel.
template <class T>
struct Right {
  GemmOperand<T> stored{};
  const void* packed = nullptr;
};

}  // namespace lockstep::detail
