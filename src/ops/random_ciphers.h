// The loops of the random bit generators on the CPU, for the instruction set of this machine. Each instruction set gives
// the same bits. Threefry-2x32 and Philox-4x32 are the block ciphers of Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3" (2011), with 20 and 10 rounds. Pure functions, safe from any thread.
#pragma once

#include <cstdint>

namespace lockstep {

struct ThreefryKey {
  uint32_t word[3];  // the third is derived from the other two

  explicit ThreefryKey(const uint32_t* words) : word{words[0], words[1], words[0] ^ words[1] ^ 0x1bd11bdau} {}
};

// The key of the cipher, and the upper half of the counters that it encrypts.
struct PhiloxKey {
  uint32_t word[2], counter[2];

  explicit PhiloxKey(const uint32_t* words) : word{words[0], words[1]}, counter{words[2], words[3]} {}
};

struct RandomCiphers {
  // out[i] = x0 ^ x1 of the counter (hi, lo + i).
  void (*threefry_bits)(ThreefryKey, uint32_t hi, uint32_t lo, uint32_t n, uint32_t* out);
  // (out0[i], out1[i]) = (x0, x1) of the counter (hi[i], lo[i]).
  void (*threefry)(ThreefryKey, const uint32_t* hi, const uint32_t* lo, int64_t n, uint32_t* out0, uint32_t* out1);
  // out[i] = word (begin + i) % 4 of the block with the counter {low and high word of (begin + i) / 4, key.counter}.
  void (*philox_bits)(PhiloxKey, uint64_t begin, int64_t n, uint32_t* out);
};

const RandomCiphers& random_ciphers();

}  // namespace lockstep
