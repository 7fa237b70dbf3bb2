// Partial sums that thread blocks exchange through global memory. A reader polls until they are there. Why that is
// enough without fences: see "Communication between thread blocks" in machine.cuh.
#pragma once
#include "machine.cuh"

namespace lockstep {

// A float as a word that is not zero, and back. The complement of a float is zero only for the NaN of all ones, which
// no arithmetic produces; it becomes another NaN.
inline uint32_t encode_ready(float x) {
  const uint32_t word = ~__float_as_uint(x);
  return word ? word : 0x80000000u;
}
inline float decode(uint32_t word) { return __uint_as_float(~word); }
// Publishes four consecutive partial sums.
inline void publish(float* to, const float4& x) {
  store_relaxed(to, encode_ready(x.x), encode_ready(x.y), encode_ready(x.z), encode_ready(x.w));
}
// Loads kCount consecutive words, each zero if it is not published yet.
template <uint32_t kCount>
inline void poll(const float* from, uint32_t (&words)[kCount]) {
  if constexpr (kCount == 4) {
    load_relaxed(from, words);
  } else if constexpr (kCount == 2) {
    const uint64_t both = load_relaxed(reinterpret_cast<const uint64_t*>(from));
    words[0] = uint32_t(both), words[1] = uint32_t(both >> 32);
  } else {
    words[0] = load_relaxed(reinterpret_cast<const uint32_t*>(from));
  }
}
// Resets kCount consecutive words after their sums were consumed.
template <int kCount>
inline void reset(float* from) {
  if constexpr (kCount == 4)
    store_relaxed(from, 0u, 0u, 0u, 0u);
  else if constexpr (kCount == 2)
    store_relaxed(reinterpret_cast<uint64_t*>(from), uint64_t(0));
  else
    store_relaxed(reinterpret_cast<uint32_t*>(from), 0u);
}

// Publishes a partial sum together with the number of the execution.
inline void publish_numbered(uint64_t* to, float x, uint32_t number) {
  store_relaxed(to, uint64_t(number) << 32 | __float_as_uint(x));
}

}  // namespace lockstep
