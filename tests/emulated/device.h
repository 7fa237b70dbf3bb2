// The built-in functions and variables of CUDA, for kernels that are compiled for this machine (compiler.cc).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "block.h"

#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ thread_local
#define __align__(n) __attribute__((aligned(n)))
#define __noinline__ __attribute__((noinline))
#define __CUDA_ARCH__ 900
#define threadIdx emulated::thread_index
#define blockIdx emulated::block_index
#define blockDim emulated::block_size
#define gridDim emulated::grid_size

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline uint32_t __float_as_uint(float x) { return __builtin_bit_cast(uint32_t, x); }
inline float __uint_as_float(uint32_t x) { return __builtin_bit_cast(float, x); }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t by) {
  by %= 32;
  return by == 0 ? high : high << by | low >> (32 - by);
}

inline void __syncthreads() { emulated::sync_block(); }
inline void __syncwarp() {
  emulated::sync_warp([] {});
}

namespace emulated {

inline int lane() { return static_cast<int>(thread_index.x % kWarp); }

// Exchanges a value between all lanes of the warp.
template <class T>
T from_lane(T x, int of) {
  static_assert(sizeof(T) <= kLaneBytes);
  std::memcpy(warp_memory() + lane() * kLaneBytes, &x, sizeof x);
  sync_warp([] {});
  if (of >= 0 && of < kWarp) std::memcpy(&x, warp_memory() + of * kLaneBytes, sizeof x);
  sync_warp([] {});  // before a lane writes the next value
  return x;
}

// A copy of the arguments of a kernel, made at its launch.
template <class... A>
struct Bound {
  std::tuple<std::remove_cvref_t<A>...> values;

  static void* make(void (*)(A...), void** arguments) {
    return [&]<size_t... I>(std::index_sequence<I...>)->void* {
      return new Bound{{*static_cast<std::remove_cvref_t<A>*>(arguments[I])...}};
    }
    (std::index_sequence_for<A...>());
  }
  static void run(void (*f)(A...), void* bound) { std::apply(f, static_cast<Bound*>(bound)->values); }
  static void end(void (*)(A...), void* bound) { delete static_cast<Bound*>(bound); }
};
template <class... A>
Bound<A...> bound_of(void (*)(A...));

}  // namespace emulated

template <class T>
T __shfl_sync(unsigned, T x, int from) {
  return emulated::from_lane(x, from % emulated::kWarp);
}
template <class T>
T __shfl_xor_sync(unsigned, T x, int by) {
  return emulated::from_lane(x, emulated::lane() ^ by);
}
template <class T>
T __shfl_up_sync(unsigned, T x, unsigned by) {
  return emulated::from_lane(x, emulated::lane() - static_cast<int>(by));
}
template <class T>
T __shfl_down_sync(unsigned, T x, unsigned by) {
  return emulated::from_lane(x, emulated::lane() + static_cast<int>(by));
}

inline int __reduce_min_sync(unsigned, int x) {
  for (int by = 1; by < emulated::kWarp; by *= 2) x = std::min(x, emulated::from_lane(x, emulated::lane() ^ by));
  return x;
}
inline int __reduce_max_sync(unsigned, int x) {
  for (int by = 1; by < emulated::kWarp; by *= 2) x = std::max(x, emulated::from_lane(x, emulated::lane() ^ by));
  return x;
}

inline int __any_sync(unsigned, bool x) { return __reduce_max_sync(~0u, x); }

// Appended to a kernel's text.
#define EMULATED_KERNEL(f)                                                                        \
  using EmulatedBound = decltype(emulated::bound_of(&f));                                         \
  extern "C" void* emulated_bind(void** arguments) { return EmulatedBound::make(&f, arguments); } \
  extern "C" void emulated_run(void* bound) { EmulatedBound::run(&f, bound); }                    \
  extern "C" void emulated_end(void* bound) { EmulatedBound::end(&f, bound); }
