// Elements in memory and in registers: types, conversions, vectors, and computed arrays.
#pragma once
#include "machine.cuh"
#include "ops/loops/scalar.h"

namespace lockstep {

// Converts an element from its type in memory to its register type (f32 for smaller floats).
inline float load(bf16 x) { return math::from_bits(uint32_t(x.bits) << 16); }
inline float load(f16 x) { return from_half(x.bits); }
inline float load(e4m3 x) { return math::from_e4m3(x.bits); }
inline float load(e5m2 x) { return math::from_e5m2(x.bits); }
template <class T>
inline T load(T x) {
  return x;
}

// kCount consecutive elements, aligned to their total size.
template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Side {
  T v[kCount];
};
template <class T>
using Four = Side<T, 4>;
// Loads and stores such a vector; element by element if `from` is not memory but behaves like it.
template <class T, int kCount, class From>
inline void load_vector(Side<T, kCount>& x, const From& from, uint64_t i) {
#pragma unroll
  for (int q = 0; q < kCount; ++q) x.v[q] = from[i + q];
}
template <class T, int kCount>
inline void load_vector(Side<T, kCount>& x, const T* const& from, uint64_t i) {
  x = *reinterpret_cast<const Side<T, kCount>*>(from + i);
}
template <class T, int kCount, class To>
inline void store_vector(const To& to, uint64_t i, const Side<T, kCount>& x) {
#pragma unroll
  for (int q = 0; q < kCount; ++q) to[i + q] = x.v[q];
}
template <class T, int kCount>
inline void store_vector(T* const& to, uint64_t i, const Side<T, kCount>& x) {
  *reinterpret_cast<Side<T, kCount>*>(to + i) = x;
}
// The values that of(i, x) computes, with the interface of an array.
template <class T, class F>
struct Computed {
  F of;
  T operator[](uint32_t i) const {
    T x;
    of(i, x);
    return x;
  }
};
template <class T, class F>
inline Computed<T, F> computed(const F& of) {
  return {of};
}

// Converts from the register type to the type in memory.
template <class T>
struct Store {
  static T of(T x) { return x; }
};
template <>
struct Store<bf16> {
  static bf16 of(float x) { return {to_bf16(x)}; }
};
template <>
struct Store<f16> {
  static f16 of(float x) { return {to_half(x)}; }
};
template <>
struct Store<e4m3> {
  static e4m3 of(float x) { return {uint8_t(rounded_pair(e4m3(), x, 0))}; }
};
template <>
struct Store<e5m2> {
  static e5m2 of(float x) { return {uint8_t(rounded_pair(e5m2(), x, 0))}; }
};
// Converts consecutive elements.
template <class T, int kCount, class R>
inline void store_side(Side<T, kCount>& to, const R (&x)[kCount]) {
  if constexpr (sizeof(T) == 2 && sizeof(R) == 4 && kCount % 2 == 0) {
    Side<uint32_t, kCount / 2> words;
#pragma unroll
    for (int q = 0; q < kCount / 2; ++q) words.v[q] = rounded_pair(T{}, math::bits(x[2 * q]), math::bits(x[2 * q + 1]));
    reinterpret_cast<Side<uint32_t, kCount / 2>&>(to) = words;
  } else {
#pragma unroll
    for (int q = 0; q < kCount; ++q) to.v[q] = Store<T>::of(x[q]);
  }
}
// Rounds to the type in memory.
template <class T, class R>
inline R rounded(R x) {
  return load(Store<T>::of(x));
}

// Converts an element of type T, or an f32 that is rounded to T.
template <class T, class In>
inline float element_of(const In& x) {
  if constexpr (sizeof(In) > sizeof(T))
    return rounded<T>(x);
  else
    return load(x);
}

}  // namespace lockstep
