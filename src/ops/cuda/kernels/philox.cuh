// The counter-based random number generator Philox-4x32 with 10 rounds (Salmon et al., 2011).
#pragma once
#include <cstdint>

namespace lockstep {

// Encrypts the counter {low and high word of `block`, words[2], words[3]} with the key {words[0], words[1]}.
inline void philox(const uint32_t* words, uint64_t block, uint32_t (&x)[4]) {
  uint32_t k0 = words[0], k1 = words[1];
  x[0] = uint32_t(block);
  x[1] = uint32_t(block >> 32);
  x[2] = words[2];
  x[3] = words[3];
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xd2511f53u) * x[0], p1 = uint64_t(0xcd9e8d57u) * x[2];
    x[0] = uint32_t(p1 >> 32) ^ x[1] ^ k0;
    x[1] = uint32_t(p1);
    x[2] = uint32_t(p0 >> 32) ^ x[3] ^ k1;
    x[3] = uint32_t(p0);
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
}

// Word i of a block. A computed index would keep the block in memory instead of registers.
inline uint32_t philox_word(const uint32_t (&x)[4], uint32_t i) {
  const uint32_t low = i & 1 ? x[1] : x[0], high = i & 1 ? x[3] : x[2];
  return i & 2 ? high : low;
}

// Writes the first n words of a block; n >= 4 writes all of them.
inline void store_philox(uint32_t* out, const uint32_t (&x)[4], uint64_t n) {
  if (n >= 4 && reinterpret_cast<uint64_t>(out) % 16 == 0) {
    *reinterpret_cast<uint4*>(out) = make_uint4(x[0], x[1], x[2], x[3]);
    return;
  }
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i)
    if (i < n) out[i] = x[i];
}

}  // namespace lockstep
