// The counter-based random number generator Threefry-2x32 with 20 rounds (Salmon et al., 2011).
#pragma once
#include <cstdint>

namespace lockstep {

// Encrypts the counter (x0, x1) with a key of two words.
inline void threefry(const uint32_t* words, uint32_t& x0, uint32_t& x1) {
  const uint32_t key[3] = {words[0], words[1], words[0] ^ words[1] ^ 0x1bd11bdau};
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  x0 += key[0];
  x1 += key[1];
#pragma unroll
  for (uint32_t group = 0; group < 5; ++group) {
#pragma unroll
    for (int round = 0; round < 4; ++round) {
      x0 += x1;
      x1 = __funnelshift_l(x1, x1, kRotations[group % 2][round]) ^ x0;
    }
    x0 += key[(group + 1) % 3];
    x1 += key[(group + 2) % 3] + (group + 1);
  }
}

}  // namespace lockstep
