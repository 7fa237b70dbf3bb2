// Sums and products that wrap for integers, where C++'s would overflow int or a signed type.
#pragma once

#include <cstdint>
#include <type_traits>

namespace lockstep {

// At least as wide as int: the product of two unsigned shorts is computed as int and overflows it.
template <class T>
using WrappingType = std::conditional_t<(sizeof(T) > sizeof(uint32_t)), uint64_t, uint32_t>;

template <class T>
T wrapped_sum(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<WrappingType<T>>(a) + static_cast<WrappingType<T>>(b));
  else
    return a + b;
}

template <class T>
T wrapped_product(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<WrappingType<T>>(a) * static_cast<WrappingType<T>>(b));
  else
    return a * b;
}

}  // namespace lockstep
